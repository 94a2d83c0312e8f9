// Which way an AllReduce takes between nodes. Pure, so that nodes which agree on the question and
// on the policy (which travels with Form) agree on the answer. Any thread; allocates nothing.
//
//   exchange  every node's partial result goes whole to all others, and each combines all of them:
//             one step, (nodes - 1) times the bytes
//   direct    node k combines shard k of everybody's partial results, then gives the result to all:
//             two steps, twice the bytes, from and to every other node
//   ring      the same in nodes - 1 steps each, from and to neighbours only (ring_schedule.h)
//
// exchange and direct combine in the order of nodes and, without a codec, give the same bits; ring
// has an order of its own.
//
// With a codec every node's partial result is encoded once, and in direct the result once more. In
// a ring each node that a sum passes encodes it anew, so that noise grows with the nodes: it is
// taken where net.algorithm says so alone.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "daemon/plan/network/network_question.h"
#include "daemon/plan/network_policy.h"

namespace arcomm {

enum class NetworkAlgorithm : std::uint8_t { Exchange, Direct, Ring };
inline constexpr NetworkAlgorithm kNetworkAlgorithms[] = {
    NetworkAlgorithm::Exchange, NetworkAlgorithm::Direct, NetworkAlgorithm::Ring};
std::string_view text_of(NetworkAlgorithm algorithm);
std::optional<NetworkAlgorithm> network_algorithm_of(std::string_view name);

// An exchange that sends NetworkPolicy::step_bytes more than direct would is no faster, although it
// has one step less. A ring whose shards are not worth two steps would cost more than it saves.
inline constexpr std::uint32_t kMostDirectNodes = 16;  // where nobody forces a ring
inline constexpr std::uint64_t kStepsOfARingShard = 2;
// What two nodes combine twice in an exchange and once in direct pays for direct's second step from
// so many steps' bytes on: measured between two daemons on one machine, where exchange was faster
// by a fifth at 256 KB and direct by a seventh at 512 KB (tests/bench/README.md).
inline constexpr std::uint64_t kStepsOfCombining = 5;

struct NetworkChoice {
  NetworkAlgorithm algorithm = NetworkAlgorithm::Exchange;
  // Elements of partial results, as they travel without a codec: the dtype or its accumulator.
  // Results travel in the dtype.
  DType partials = DType::Float32;
  std::string_view why;  // a static sentence without its full stop

  friend bool operator==(const NetworkChoice&, const NetworkChoice&) = default;
};

NetworkChoice choose_network(const NetworkQuestion& question, const NetworkPolicy& policy);

}  // namespace arcomm
