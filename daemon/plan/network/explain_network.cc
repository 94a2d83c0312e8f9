#include "daemon/plan/network/explain_network.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>

#include "daemon/plan/network/gpu_exchange.h"
#include "daemon/plan/network/network_choice.h"
#include "daemon/plan/network/network_load.h"
#include "daemon/plan/network/network_payload.h"
#include "daemon/plan/network/ring_schedule.h"
#include "proto/gpu/device_fifo.h"

namespace arcomm {
namespace {

std::string size_of_bytes(std::uint64_t bytes) {
  const auto scaled = [bytes](unsigned shift) {
    return static_cast<double>(bytes) / static_cast<double>(std::uint64_t{1} << shift);
  };
  if (bytes >= std::uint64_t{1} << 20) return fmt::format("{:.4g} MiB", scaled(20));
  if (bytes >= std::uint64_t{1} << 10) return fmt::format("{:.4g} KiB", scaled(10));
  return fmt::format("{} bytes", bytes);
}

// Each step waits for a message, and what a node sends goes through its one interface.
double microseconds_of(const NetworkLoad& load, const LinkFigures* link) {
  if (link == nullptr) return 0;
  constexpr double kUsPerSecond = 1e6;
  return static_cast<double>(load.steps) * link->latency_us +
         static_cast<double>(load.bytes_sent) / static_cast<double>(link->bytes_per_second) *
             kUsPerSecond;
}

// microseconds: 0 where no link was measured.
std::string line_of(const NetworkQuestion& question, NetworkAlgorithm algorithm, bool bidirectional,
                    const NetworkLoad& load, double microseconds) {
  const std::string time = microseconds == 0 ? "" : fmt::format(", about {:.0f} us", microseconds);
  const bool is_ring = algorithm == NetworkAlgorithm::Ring;
  const std::uint32_t peers = !is_ring ? question.nodes - 1 : bidirectional ? 2 : 1;
  return fmt::format("  {:<9} {} {}, each node sends {} to {} {}{}\n", text_of(algorithm),
                     load.steps, load.steps == 1 ? "step" : "steps", size_of_bytes(load.bytes_sent),
                     peers, peers == 1 ? "node" : "nodes", time);
}

// "measured with node1 at 10.0.0.2:7400, ..."
std::string text_of_link(const LinkFigures& link, const NetworkTuning& measured) {
  return fmt::format(
      "measured with {}{}, {:.1f} us and {:.2f} GB/s each way, {}; the slowest of {} in {}",
      link.name.empty() ? "" : link.name + " at ", link.address, link.latency_us,
      static_cast<double>(link.bytes_per_second) / 1e9,
      link.without_copies ? "without copies" : "with copies", measured.links.size(),
      measured.source);
}

// What a step costs, and where that comes from.
std::string text_of_step(const NetworkPolicy& policy, const NetworkTuning& measured) {
  const LinkFigures* const link = measured.slowest();
  if (link == nullptr) {
    return fmt::format(
        "  a step is taken to cost as much as sending {}: no link was measured (arctl tune "
        "--network)\n",
        size_of_bytes(policy.step_bytes));
  }
  return fmt::format("  a step costs as much as sending {}: {}\n", size_of_bytes(policy.step_bytes),
                     text_of_link(*link, measured));
}

// How finely a ring would work, and what each of its settings came to.
std::string text_of_shape(const RingShape& shape, const NetworkPolicy& policy,
                          const NetworkTuning& measured) {
  std::string text = fmt::format(
      "  a ring's chunks are of {}, {} under way to a neighbour; what bounds them is {}\n",
      size_of_bytes(shape.chunk_bytes), shape.slots, text_of(shape.bound));
  if (policy.ring.chunk_bytes > shape.chunk_bytes)
    text += fmt::format("  ring.chunk_bytes asks for {}, which is held to that\n",
                        size_of_bytes(policy.ring.chunk_bytes));
  if (policy.ring.num_chunks > shape.slots)
    text += fmt::format("  ring.num_chunks asks for {}, which is held to that\n",
                        policy.ring.num_chunks);
  // There and back: a chunk's place is free once the neighbour has said so.
  const LinkFigures* const link = measured.slowest();
  if (link != nullptr && 2 * link->step_bytes() > shape.in_flight_bytes()) {
    text += fmt::format(
        "  that is less than the {} which the measured link holds, there and back: a ring would "
        "wait for the network\n",
        size_of_bytes(2 * link->step_bytes()));
  }
  const std::string threads =
      shape.threads == 0 ? "as many threads as fit" : fmt::format("{} threads", shape.threads);
  text += fmt::format(
      "  for chunks of this size the kernel on GPUs, which nothing launches yet, has {} {} of {} "
      "({}, {})\n",
      shape.blocks, shape.blocks == 1 ? "block" : "blocks", threads,
      policy.ring.max_blocks == 0             ? "the tier's blocks"
      : policy.ring.max_blocks > shape.blocks ? "the tier's, below ring.max_blocks"
                                              : "ring.max_blocks",
      policy.ring.threads == 0 ? "the tier's threads" : "ring.threads");
  return text;
}

// How GPUs cut it, and what carries it.
std::string text_of_cut(const GpuExchange& cut, const NetworkQuestion& question,
                        std::uint32_t lanes) {
  if (cut.chunks == 0) return "  it has no data, and nothing is launched\n";
  const std::uint64_t chunk_bytes =
      partial_bytes(question, cut.partials, std::min(cut.chunk_elements, question.count));
  const std::uint64_t lane_bytes = std::uint64_t{kFifoSteps} * cut.slot_bytes;
  return fmt::format(
      "  {} {} of at most {} to each node, over {} of {} lanes; on each node a kernel of {} blocks "
      "stages and combines them\n"
      "  a lane has {} slots of {} for each node and way: {} of net.staging_bytes for each node\n",
      cut.chunks, cut.chunks == 1 ? "chunk" : "chunks", size_of_bytes(chunk_bytes), cut.lanes,
      lanes, cut.blocks(), kFifoSteps, size_of_bytes(cut.slot_bytes),
      size_of_bytes(2 * lanes * lane_bytes));
}

// With this algorithm forced, whatever it needs besides.
NetworkChoice as(NetworkAlgorithm algorithm, const NetworkQuestion& question,
                 NetworkPolicy policy) {
  policy.order = NetOrder::OfRing;
  policy.ring.min_shard_bytes = 0;
  policy.algorithm = algorithm == NetworkAlgorithm::Exchange ? NetAlgorithm::Exchange
                     : algorithm == NetworkAlgorithm::Direct ? NetAlgorithm::Direct
                                                             : NetAlgorithm::Ring;
  return choose_network(question, policy);
}

}  // namespace

Explanation explain_network(const NetworkQuestion& question, const NetworkPolicy& policy,
                            const NetworkTuning& measured) {
  const LinkFigures* const link = measured.slowest();
  const NetworkChoice choice = choose_network(question, policy);
  const NetworkChoice around = as(NetworkAlgorithm::Ring, question, policy);
  const RingShape shape =
      ring_shape(partial_bytes(question, around.partials, question.count), question.nodes,
                 ring_room_of_hosts(question, around.partials), policy.ring);
  Explanation answer;
  answer.chosen = answer.runner_up = text_of(choice.algorithm);
  answer.text =
      fmt::format("{} nodes x {} {}: {}\n  {}\n", question.nodes, size_of_bytes(question.bytes()),
                  text_of(question.dtype), answer.chosen, choice.why);
  // The next best sends the least of the other two, or as much in fewer steps.
  NetworkLoad least;
  for (const NetworkAlgorithm algorithm : kNetworkAlgorithms) {
    const NetworkChoice forced = as(algorithm, question, policy);
    if (forced.algorithm != algorithm) {
      answer.text += fmt::format("  {:<9} not so: {}\n", text_of(algorithm), forced.why);
      continue;
    }
    const NetworkLoad load = network_load(question, forced, shape.bidirectional, 0);
    const double microseconds = microseconds_of(load, link);
    answer.text += line_of(question, algorithm, shape.bidirectional, load, microseconds);
    if (algorithm == choice.algorithm) {
      answer.chosen_microseconds = microseconds;
      continue;
    }
    if (answer.runner_up == answer.chosen || load.bytes_sent < least.bytes_sent) {
      answer.runner_up = text_of(algorithm);
      answer.runner_up_microseconds = microseconds;
      least = load;
    }
  }
  answer.text += text_of_step(policy, measured);
  if (around.algorithm == NetworkAlgorithm::Ring)
    answer.text += text_of_shape(shape, policy, measured);
  answer.text += fmt::format(
      "  partial results travel as {}; added up {}\n",
      question.codec == Codec::None ? text_of(choice.partials) : text_of(question.codec),
      choice.algorithm == NetworkAlgorithm::Ring
          ? "around the ring, from another node on in each shard"
          : "in the order of ranks on each node, then of nodes");
  answer.text += "  by this daemon's settings; where a communicator meets, its root's count\n";
  return answer;
}

Explanation explain_network_of_gpus(const NetworkQuestion& question, const NetworkPolicy& policy,
                                    const NetworkTuning& measured) {
  const std::uint32_t lanes = GpuExchange::lanes_among(question.nodes, policy.gpu_lanes);
  const GpuExchange cut = GpuExchange::of(question, lanes);
  const NetworkChoice choice{.algorithm = GpuExchange::kAlgorithm,
                             .partials = cut.partials,
                             .why = "the one way between GPUs of several nodes, for all sizes"};
  const LinkFigures* const link = measured.slowest();
  Explanation answer;
  answer.chosen = answer.runner_up = text_of(choice.algorithm);
  answer.text = fmt::format("{} nodes x {} {} between GPUs: {}\n  {}\n", question.nodes,
                            size_of_bytes(question.bytes()), text_of(question.dtype), answer.chosen,
                            choice.why);
  // Of what was called a message tells before, and no data go with it.
  const NetworkLoad load = network_load(question, choice, false, 0);
  if (link != nullptr) answer.chosen_microseconds = link->latency_us + microseconds_of(load, link);
  answer.runner_up_microseconds = answer.chosen_microseconds;
  answer.text += line_of(question, choice.algorithm, false, load, answer.chosen_microseconds);
  answer.text += "  behind a message that says what was called; no data go with that\n";
  answer.text += link == nullptr
                     ? "  no link was measured (arctl tune --network)\n"
                     : fmt::format("  a message is {}\n", text_of_link(*link, measured));
  answer.text += text_of_cut(cut, question, lanes);
  answer.text += fmt::format(
      "  partial results travel as {}; added up in the order of ranks on each node, then of nodes\n"
      "  net.algorithm, net.order, net.partials and ring.* say nothing to GPUs\n",
      question.codec == Codec::None ? text_of(cut.partials) : text_of(question.codec));
  return answer;
}

}  // namespace arcomm
