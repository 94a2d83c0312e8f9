#include "daemon/plan/network/explain_network.h"

#include <fmt/format.h>

#include <string>

#include "daemon/plan/network/host_window.h"
#include "daemon/plan/network/network_choice.h"
#include "daemon/plan/network/network_load.h"
#include "daemon/plan/network/ring_schedule.h"

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

std::string line_of(const NetworkQuestion& question, const NetworkChoice& choice,
                    bool bidirectional, const LinkFigures* link) {
  const NetworkLoad load = network_load(question, choice, bidirectional, 0);
  const std::string time =
      link == nullptr ? "" : fmt::format(", about {:.0f} us", microseconds_of(load, link));
  const bool is_ring = choice.algorithm == NetworkAlgorithm::Ring;
  const std::uint32_t peers = !is_ring ? question.nodes - 1 : bidirectional ? 2 : 1;
  return fmt::format("  {:<9} {} {}, each node sends {} to {} {}{}\n", text_of(choice.algorithm),
                     load.steps, load.steps == 1 ? "step" : "steps", size_of_bytes(load.bytes_sent),
                     peers, peers == 1 ? "node" : "nodes", time);
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
  return fmt::format(
      "  a step costs as much as sending {}: measured with {}{}, {:.1f} us and {:.2f} GB/s each "
      "way, {}; the slowest of {} in {}\n",
      size_of_bytes(policy.step_bytes), link->name.empty() ? "" : link->name + " at ",
      link->address, link->latency_us, static_cast<double>(link->bytes_per_second) / 1e9,
      link->without_copies ? "without copies" : "with copies", measured.links.size(),
      measured.source);
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
  text += fmt::format("  for chunks of this size a kernel on GPUs has {} {} of {} ({}, {})\n",
                      shape.blocks, shape.blocks == 1 ? "block" : "blocks", threads,
                      policy.ring.max_blocks == 0             ? "the tier's blocks"
                      : policy.ring.max_blocks > shape.blocks ? "the tier's, below ring.max_blocks"
                                                              : "ring.max_blocks",
                      policy.ring.threads == 0 ? "the tier's threads" : "ring.threads");
  return text;
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
  const std::uint64_t element_bytes = size_of(around.partials);
  const RingShape shape =
      ring_shape(question.count * element_bytes, question.nodes,
                 ring_room_of_hosts(question.nodes, element_bytes), policy.ring);
  Explanation answer;
  answer.chosen = answer.runner_up = text_of(choice.algorithm);
  answer.text =
      fmt::format("{} nodes x {} {}: {}\n  {}\n", question.nodes, size_of_bytes(question.bytes()),
                  text_of(question.dtype), answer.chosen, choice.why);
  // The next best sends the least of the other two, or as much in fewer steps.
  NetworkLoad least;
  for (const NetworkAlgorithm algorithm : kNetworkAlgorithms) {
    const NetworkChoice other = as(algorithm, question, policy);
    answer.text += line_of(question, other, shape.bidirectional, link);
    const NetworkLoad load = network_load(question, other, shape.bidirectional, 0);
    if (algorithm == choice.algorithm) {
      answer.chosen_microseconds = microseconds_of(load, link);
      continue;
    }
    if (answer.runner_up == answer.chosen || load.bytes_sent < least.bytes_sent) {
      answer.runner_up = text_of(algorithm);
      answer.runner_up_microseconds = microseconds_of(load, link);
      least = load;
    }
  }
  answer.text += text_of_step(policy, measured);
  answer.text += text_of_shape(shape, policy, measured);
  answer.text +=
      fmt::format("  partial results travel as {}; added up {}\n", text_of(choice.partials),
                  choice.algorithm == NetworkAlgorithm::Ring
                      ? "around the ring, from another node on in each shard"
                      : "in the order of ranks on each node, then of nodes");
  answer.text += "  by this daemon's settings; where a communicator meets, its root's count\n";
  return answer;
}

}  // namespace arcomm
