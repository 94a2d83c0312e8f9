#include "daemon/plan/network/network_load.h"

#include "daemon/plan/network/network_payload.h"
#include "daemon/plan/network/network_shards.h"
#include "daemon/plan/network/ring_schedule.h"

namespace arcomm {
namespace {

void send(NetworkLoad& load, std::uint64_t bytes) {
  load.bytes_sent += bytes;
  load.messages_sent += bytes != 0 ? 1 : 0;
}
void receive(NetworkLoad& load, std::uint64_t bytes) {
  load.bytes_received += bytes;
  load.messages_received += bytes != 0 ? 1 : 0;
}

NetworkLoad load_of_exchange(const NetworkQuestion& question, DType partials) {
  NetworkLoad load{.steps = 1};
  const std::uint64_t bytes = partial_bytes(question, partials, question.count);
  for (std::uint32_t peer = 1; peer < question.nodes; ++peer) {
    send(load, bytes);
    receive(load, bytes);
  }
  return load;
}

NetworkLoad load_of_direct(const NetworkQuestion& question, DType partials, std::uint32_t node) {
  NetworkLoad load{.steps = 2};
  const NetworkShards shards(question);
  const std::uint64_t mine = shards.of(node).size();
  for (std::uint32_t peer = 0; peer < question.nodes; ++peer) {
    if (peer == node) continue;
    const std::uint64_t its = shards.of(peer).size();
    send(load, partial_bytes(question, partials, its));
    receive(load, partial_bytes(question, partials, mine));
    send(load, result_bytes(question, mine));
    receive(load, result_bytes(question, its));
  }
  return load;
}

NetworkLoad load_of_ring(const NetworkQuestion& question, DType partials, bool bidirectional,
                         std::uint32_t node) {
  const RingSchedule schedule(question.nodes, node, bidirectional);
  const NetworkShards shards(question);
  NetworkLoad load{.steps = schedule.steps()};
  for (std::uint32_t index = 0; index < schedule.steps(); ++index) {
    const RingStep step = schedule.step(index);
    const auto bytes_of = [&](std::uint32_t shard) {
      const std::uint64_t elements = shards.of(shard).size();
      return step.phase == RingPhase::ReduceScatter ? partial_bytes(question, partials, elements)
                                                    : result_bytes(question, elements);
    };
    for (const RingSend& out : {step.right, step.left}) {
      if (out.used) send(load, bytes_of(out.shard));
    }
    for (const RingReceive& in : {step.from_left, step.from_right}) {
      if (in.duty != RingDuty::None) receive(load, bytes_of(in.shard));
    }
  }
  return load;
}

}  // namespace

NetworkLoad network_load(const NetworkQuestion& question, const NetworkChoice& choice,
                         bool bidirectional, std::uint32_t node) {
  if (question.nodes <= 1) return {};
  switch (choice.algorithm) {
    case NetworkAlgorithm::Exchange:
      return load_of_exchange(question, choice.partials);
    case NetworkAlgorithm::Direct:
      return load_of_direct(question, choice.partials, node);
    case NetworkAlgorithm::Ring:
      return load_of_ring(question, choice.partials, bidirectional, node);
  }
  return {};
}

}  // namespace arcomm
