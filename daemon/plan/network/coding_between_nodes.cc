#include "daemon/plan/network/coding_between_nodes.h"

#include <algorithm>
#include <functional>
#include <iterator>
#include <optional>
#include <utility>

#include "daemon/plan/network/gpu_exchange.h"
#include "daemon/plan/network/network_choice.h"
#include "daemon/plan/network/network_load.h"
#include "kernels/codec/format.h"

namespace arcomm {
namespace {

constexpr double kNsPerSecond = 1e9;
constexpr std::uint64_t kPsPerNs = 1000;
constexpr std::uint16_t kHalves = bit_of(DType::Float16) | bit_of(DType::BFloat16);
constexpr std::uint16_t kFloats = bit_of(DType::Float32);
// Sizes that are looked at, each four times the last: behind these nothing changes any more.
constexpr std::uint64_t kMostCodedBytes = std::uint64_t{256} << 20;
constexpr std::uint64_t kLongestBytes = std::uint64_t{1} << 42;
// Of those that send as many bits the one that codes faster first.
constexpr Codec kFewestBitsFirst[] = {Codec::Q4,        Codec::Q4Rotated, Codec::Q6,
                                      Codec::Q6Rotated, Codec::Fp8,       Codec::Q8,
                                      Codec::Q8Rotated};
static_assert(std::size(kFewestBitsFirst) == std::size(kRealCodecs));

// Between GPUs where nobody has measured: the link on which codecs were, 64 MB of bfloat16 in 7.6
// ms (tests/gpu/bench/README.md).
constexpr double kTriedGpuLink = 8.8e9;

// A slower link gains no more; what a peer says may be any number.
constexpr std::uint64_t kSlowestLink = 1'000'000;

// Bytes a second; 0: not known.
double throughput(bool on_gpus, const NetworkPolicy& policy) {
  if (policy.link_bytes_per_second != 0)
    return static_cast<double>(std::max(policy.link_bytes_per_second, kSlowestLink));
  return on_gpus ? kTriedGpuLink : 0;
}

NetworkChoice choice_of(const NetworkQuestion& question, bool on_gpus,
                        const NetworkPolicy& policy) {
  if (!on_gpus) return choose_network(question, policy);
  return {.algorithm = GpuExchange::kAlgorithm,
          .partials = question.one_seat_each ? question.dtype : accumulator_of(question.dtype),
          .why = {}};
}

// Each step waits for a message, and what a node sends goes through its one interface.
std::uint64_t link_ns(const NetworkQuestion& question, const NetworkChoice& choice,
                      const NetworkPolicy& policy, double bytes_per_second) {
  const NetworkLoad load = network_load(question, choice, false, 0);
  const std::uint64_t bytes = load.steps * policy.step_bytes + load.bytes_sent;
  return static_cast<std::uint64_t>(static_cast<double>(bytes) / bytes_per_second * kNsPerSecond);
}

// By exchange a node decodes all of everybody's; by direct its own part of everybody's and all
// results, of which it has encoded its part.
std::uint64_t coding_ns(const NetworkQuestion& question, NetworkAlgorithm algorithm,
                        const CodingCost& cost) {
  const std::uint64_t nodes = question.nodes;
  const std::uint64_t of_element =
      algorithm == NetworkAlgorithm::Exchange
          ? cost.encode_ps + nodes * cost.decode_ps
          : cost.encode_ps + cost.encode_ps / nodes + 2 * cost.decode_ps;
  return cost.begin_ns + question.count * of_element / kPsPerNs;
}

NetworkQuestion question_of(const RanksOnNodes& where, Codec codec, DType dtype,
                            std::uint64_t bytes) {
  return {.count = bytes / size_of(dtype),
          .dtype = dtype,
          .nodes = where.nodes,
          .one_seat_each = where.one_seat_each(),
          .codec = codec};
}

// From which size on the codec pays; nothing where the longest does not gain by it.
std::optional<std::uint64_t> least_bytes(const RanksOnNodes& where, Codec codec, DType dtype,
                                         const NetworkPolicy& policy) {
  std::optional<std::uint64_t> least;
  for (std::uint64_t bytes = kMostCodedBytes; bytes >= kLeastCodedBytes; bytes /= 4) {
    const NetworkQuestion question = question_of(where, codec, dtype, bytes);
    if (coding_gain(question, where.on_gpus, policy) < kLeastCodingGain) break;
    least = bytes;
  }
  return least;
}

NetworkAlgorithm algorithm_of_longest(const RanksOnNodes& where, Codec codec,
                                      const NetworkPolicy& policy) {
  const NetworkQuestion longest = question_of(where, codec, DType::Float32, kLongestBytes);
  return choice_of(longest, where.on_gpus, policy).algorithm;
}

// How often an element is quantized: once, where all sizes go by exchange.
std::uint8_t times_of(const RanksOnNodes& where, Codec codec, const NetworkPolicy& policy) {
  return algorithm_of_longest(where, codec, policy) == NetworkAlgorithm::Exchange ? 1 : 2;
}

}  // namespace

CodingCost coding_cost(Codec codec, bool on_gpus) {
  // 64 MB of bfloat16 between two H200 took 2177 us with q4_rotated, the link's time included:
  // 0.065 ns an element at the most, of which nobody has measured the parts.
  if (on_gpus) return {.encode_ps = 0, .decode_ps = 32};
  // Between two daemons on links that were not in the way (tests/bench/README.md, "Codecs between
  // nodes", 16 MB): 2.0 to 2.4 ns an element in all with these codecs, up to 3.4 with six bits or a
  // transform, 0.5 of it to decode two nodes'. One core, AVX-512. And 64 KB took 40 to 50 us more
  // than that and the link together.
  const CodecFormat format = format_of(codec);
  const bool is_slow = format.rotated || format.bits == 6;
  return {.encode_ps = is_slow ? 2900u : 1900u, .decode_ps = 250, .begin_ns = 50'000};
}

double coding_gain(const NetworkQuestion& question, bool on_gpus, const NetworkPolicy& policy) {
  const double bytes_per_second = throughput(on_gpus, policy);
  if (bytes_per_second == 0) return 0;
  NetworkQuestion plain = question;
  plain.codec = Codec::None;
  const NetworkChoice coded = choice_of(question, on_gpus, policy);
  const std::uint64_t without =
      link_ns(plain, choice_of(plain, on_gpus, policy), policy, bytes_per_second);
  const std::uint64_t with =
      std::max(link_ns(question, coded, policy, bytes_per_second),
               coding_ns(question, coded.algorithm, coding_cost(question.codec, on_gpus)));
  return static_cast<double>(without) / static_cast<double>(std::max<std::uint64_t>(with, 1));
}

bool goes_round(const RanksOnNodes& where, const NetworkPolicy& policy) {
  return algorithm_of_longest(where, Codec::Q8, policy) == NetworkAlgorithm::Ring;
}

std::vector<CodingRow> coding_rows_between_nodes(const RanksOnNodes& where,
                                                 const NetworkPolicy& policy) {
  if (policy.coding_rules != kCodingRules || (where.on_gpus && !policy.gpu_codecs) ||
      throughput(where.on_gpus, policy) == 0 || goes_round(where, policy))
    return {};
  std::vector<std::pair<double, CodingRow>> found;
  for (const Codec codec : kFewestBitsFirst) {
    const auto add = [&](std::uint64_t least, std::uint16_t dtypes) {
      // Of as many elements, so that what is gained compares what they take.
      const double gain = coding_gain(question_of(where, codec, DType::Float32, kMostCodedBytes),
                                      where.on_gpus, policy);
      found.emplace_back(gain, CodingRow{.codec = codec,
                                         .least_bytes = least,
                                         .dtypes = dtypes,
                                         .times = times_of(where, codec, policy)});
    };
    const auto of_halves = least_bytes(where, codec, DType::BFloat16, policy);
    const auto of_floats = least_bytes(where, codec, DType::Float32, policy);
    if (of_halves && of_halves == of_floats) {
      add(*of_halves, kHalves | kFloats);
      continue;
    }
    if (of_floats) add(*of_floats, kFloats);
    if (of_halves) add(*of_halves, kHalves);
  }
  std::ranges::stable_sort(found, std::greater<>(), &std::pair<double, CodingRow>::first);
  std::vector<CodingRow> rows;
  for (const auto& [gain, row] : found) rows.push_back(row);
  return rows;
}

}  // namespace arcomm
