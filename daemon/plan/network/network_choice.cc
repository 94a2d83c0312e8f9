#include "daemon/plan/network/network_choice.h"

#include "daemon/plan/network/network_payload.h"
#include "kernels/args.h"

namespace arcomm {
namespace {

struct Verdict {
  NetworkAlgorithm algorithm;
  std::string_view why;
};

// exchange: (n - 1) bytes in one step; direct: 2 (n - 1) / n in two. Between two nodes they send
// the same, but in an exchange each node combines all of it, and in direct half.
bool exchange_is_faster(std::uint64_t bytes, std::uint64_t nodes, std::uint64_t step_bytes) {
  if (nodes <= 2) return bytes <= kStepsOfCombining * step_bytes;
  return bytes <= step_bytes * nodes / ((nodes - 1) * (nodes - 2));
}

// Null where it may be a ring, else why not.
const char* keeps_from_ring(const NetworkQuestion& question, const NetworkPolicy& policy) {
  if (!any_order_gives_the_same(question.dtype) && policy.order != NetOrder::OfRing) {
    return "a ring adds floats in an order of its own, which net.order = \"ring\" would allow";
  }
  if (question.bytes() / question.nodes < policy.ring.min_shard_bytes) {
    return "a node's shard is below ring.min_shard_bytes";
  }
  return nullptr;
}

Verdict decide(const NetworkQuestion& question, const NetworkPolicy& policy) {
  static_assert(kCollectives == 1, "all ways between nodes are an AllReduce's");
  using enum NetworkAlgorithm;
  const char* const no_ring = keeps_from_ring(question, policy);
  switch (policy.algorithm) {
    case NetAlgorithm::Exchange:
      return {Exchange, "net.algorithm says so"};
    case NetAlgorithm::Direct:
      return {Direct, "net.algorithm says so"};
    case NetAlgorithm::Ring:
      if (question.nodes <= 1) return {Exchange, "there is one node only"};
      if (no_ring == nullptr) return {Ring, "net.algorithm says so"};
      return {Direct, no_ring};
    case NetAlgorithm::Auto:
      break;
  }
  if (question.nodes <= 1) return {Exchange, "there is one node only"};
  if (question.codec != Codec::None && question.nodes == 2)
    return {Exchange, "between two nodes it sends no more, and encodes every element once"};
  const std::uint64_t bytes = partial_bytes(question, question.dtype, question.count);
  if (exchange_is_faster(bytes, question.nodes, policy.step_bytes)) {
    return {Exchange, "so small that one step counts more than what it sends"};
  }
  if (question.nodes <= kMostDirectNodes) {
    return {Direct, "two steps, and no node sends more than twice the bytes"};
  }
  if (question.codec != Codec::None) return {Direct, "a ring would encode sums anew on every node"};
  if (no_ring != nullptr) return {Direct, no_ring};
  if (question.bytes() / question.nodes < kStepsOfARingShard * policy.step_bytes) {
    return {Direct, "a ring's steps would count more than what each of them sends"};
  }
  return {Ring, "so many nodes that each should send to its neighbours only"};
}

DType partials_of(NetworkAlgorithm algorithm, const NetworkQuestion& question,
                  const NetworkPolicy& policy) {
  if (policy.partials == NetPartials::DType || question.codec != Codec::None) return question.dtype;
  // A rank's input is no sum yet; but what goes round a ring is one.
  if (question.one_seat_each && algorithm != NetworkAlgorithm::Ring) return question.dtype;
  return accumulator_of(question.dtype);
}

}  // namespace

std::string_view text_of(NetworkAlgorithm algorithm) {
  switch (algorithm) {
    case NetworkAlgorithm::Exchange:
      return "exchange";
    case NetworkAlgorithm::Direct:
      return "direct";
    case NetworkAlgorithm::Ring:
      return "ring";
  }
  return "unknown algorithm";
}

std::optional<NetworkAlgorithm> network_algorithm_of(std::string_view name) {
  for (const NetworkAlgorithm algorithm : kNetworkAlgorithms) {
    if (name == text_of(algorithm)) return algorithm;
  }
  return std::nullopt;
}

NetworkChoice choose_network(const NetworkQuestion& question, const NetworkPolicy& policy) {
  const Verdict verdict = decide(question, policy);
  return {.algorithm = verdict.algorithm,
          .partials = partials_of(verdict.algorithm, question, policy),
          .why = verdict.why};
}

}  // namespace arcomm
