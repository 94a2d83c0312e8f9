#include "daemon/plan/network/network_load.h"

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

NetworkLoad load_of_exchange(const NetworkQuestion& question, std::uint64_t partial_bytes) {
  NetworkLoad load{.steps = 1};
  for (std::uint32_t peer = 1; peer < question.nodes; ++peer) {
    send(load, question.count * partial_bytes);
    receive(load, question.count * partial_bytes);
  }
  return load;
}

NetworkLoad load_of_direct(const NetworkQuestion& question, std::uint64_t partial_bytes,
                           std::uint32_t node) {
  NetworkLoad load{.steps = 2};
  const NetworkShards shards(question);
  const std::uint64_t mine = shards.of(node).size(), result_bytes = size_of(question.dtype);
  for (std::uint32_t peer = 0; peer < question.nodes; ++peer) {
    if (peer == node) continue;
    send(load, shards.of(peer).size() * partial_bytes);
    receive(load, mine * partial_bytes);
    send(load, mine * result_bytes);
    receive(load, shards.of(peer).size() * result_bytes);
  }
  return load;
}

NetworkLoad load_of_ring(const NetworkQuestion& question, std::uint64_t partial_bytes,
                         bool bidirectional, std::uint32_t node) {
  const RingSchedule schedule(question.nodes, node, bidirectional);
  const NetworkShards shards(question);
  NetworkLoad load{.steps = schedule.steps()};
  for (std::uint32_t index = 0; index < schedule.steps(); ++index) {
    const RingStep step = schedule.step(index);
    const std::uint64_t element_bytes =
        step.phase == RingPhase::ReduceScatter ? partial_bytes : size_of(question.dtype);
    for (const RingSend& out : {step.right, step.left}) {
      if (out.used) send(load, shards.of(out.shard).size() * element_bytes);
    }
    for (const RingReceive& in : {step.from_left, step.from_right}) {
      if (in.duty != RingDuty::None) receive(load, shards.of(in.shard).size() * element_bytes);
    }
  }
  return load;
}

}  // namespace

NetworkLoad network_load(const NetworkQuestion& question, const NetworkChoice& choice,
                         bool bidirectional, std::uint32_t node) {
  if (question.nodes <= 1) return {};
  const std::uint64_t partial_bytes = size_of(choice.partials);
  switch (choice.algorithm) {
    case NetworkAlgorithm::Exchange:
      return load_of_exchange(question, partial_bytes);
    case NetworkAlgorithm::Direct:
      return load_of_direct(question, partial_bytes, node);
    case NetworkAlgorithm::Ring:
      return load_of_ring(question, partial_bytes, bidirectional, node);
  }
  return {};
}

}  // namespace arcomm
