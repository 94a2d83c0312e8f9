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

std::string line_of(const NetworkQuestion& question, const NetworkChoice& choice,
                    bool bidirectional) {
  const NetworkLoad load = network_load(question, choice, bidirectional, 0);
  const bool is_ring = choice.algorithm == NetworkAlgorithm::Ring;
  const std::uint32_t peers = !is_ring ? question.nodes - 1 : bidirectional ? 2 : 1;
  return fmt::format("  {:<9} {} {}, each node sends {} to {} {}\n", text_of(choice.algorithm),
                     load.steps, load.steps == 1 ? "step" : "steps", size_of_bytes(load.bytes_sent),
                     peers, peers == 1 ? "node" : "nodes");
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

Explanation explain_network(const NetworkQuestion& question, const NetworkPolicy& policy) {
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
    answer.text += line_of(question, other, shape.bidirectional);
    if (algorithm == choice.algorithm) continue;
    const NetworkLoad load = network_load(question, other, shape.bidirectional, 0);
    if (answer.runner_up == answer.chosen || load.bytes_sent < least.bytes_sent) {
      answer.runner_up = text_of(algorithm);
      least = load;
    }
  }
  answer.text += fmt::format(
      "  a ring's chunks are of {}, {} under way to a neighbour; what bounds them is {}\n",
      size_of_bytes(shape.chunk_bytes), shape.slots, text_of(shape.bound));
  answer.text +=
      fmt::format("  partial results travel as {}; added up {}\n", text_of(choice.partials),
                  choice.algorithm == NetworkAlgorithm::Ring
                      ? "around the ring, from another node on in each shard"
                      : "in the order of ranks on each node, then of nodes");
  answer.text += "  by this daemon's settings; where a communicator meets, its root's count\n";
  return answer;
}

}  // namespace arcomm
