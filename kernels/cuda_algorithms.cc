#include "kernels/cuda_algorithms.h"

#include <array>

#include "kernels/launch/cuda_scratch.h"

namespace arcomm {
namespace {

constexpr CudaAlgorithmEntry plain(CudaAlgorithm algorithm, std::string_view name,
                                   std::uint64_t max_bytes) {
  return {.algorithm = algorithm,
          .name = name,
          .min_ranks = 2,
          .max_ranks = kMaxGpuRanks,
          .max_bytes = max_bytes};
}
constexpr CudaAlgorithmEntry with_atomic_128b_stores(CudaAlgorithmEntry entry) {
  entry.needs_atomic_128b_stores = true;
  return entry;
}
constexpr CudaAlgorithmEntry with_slots(CudaAlgorithmEntry entry) {
  entry.needs_slots = true;
  return entry;
}
constexpr CudaAlgorithmEntry joint(CudaAlgorithmEntry entry, std::uint64_t sensible_from) {
  entry.launches_all_ranks = true;
  entry.sensible_from = sensible_from;
  return entry;
}

constexpr std::array kAlgorithms = {
    plain(CudaAlgorithm::OneShotLl16, "one_shot_ll16", kMaxLl16Bytes),
    plain(CudaAlgorithm::TwoShot, "two_shot", 0),
    with_slots(plain(CudaAlgorithm::Stream, "stream", 0)),
    plain(CudaAlgorithm::Flash, "flash", 0),
    with_atomic_128b_stores(
        plain(CudaAlgorithm::OneShotLl128, "one_shot_ll128", max_one_shot_ll128_bytes(2))),
    with_atomic_128b_stores(
        plain(CudaAlgorithm::TwoShotLl128, "two_shot_ll128", kMaxTwoShotLl128Bytes)),
    with_slots(
        joint(plain(CudaAlgorithm::CopyEngine, "copy_engine", max_copy_engine_bytes(2)), 16 << 20)),
    CudaAlgorithmEntry{.algorithm = CudaAlgorithm::Alone,
                       .name = "alone",
                       .min_ranks = 1,
                       .max_ranks = 1,
                       .max_bytes = 0},
};

constexpr bool in_order() {
  for (std::size_t i = 0; i < kAlgorithms.size(); ++i) {
    if (static_cast<std::size_t>(kAlgorithms[i].algorithm) != i) return false;
  }
  return kAlgorithms.back().algorithm == CudaAlgorithm::Alone;
}
static_assert(in_order(), "entry_of() indexes by the enum");

}  // namespace

std::span<const CudaAlgorithmEntry> cuda_algorithms() {
  return kAlgorithms;
}

const CudaAlgorithmEntry& entry_of(CudaAlgorithm algorithm) {
  return kAlgorithms[static_cast<std::size_t>(algorithm)];
}

std::string_view name_of(CudaAlgorithm algorithm) {
  return entry_of(algorithm).name;
}

std::optional<CudaAlgorithm> cuda_algorithm_named(std::string_view name) {
  for (const CudaAlgorithmEntry& entry : kAlgorithms) {
    if (entry.name == name) return entry.algorithm;
  }
  return std::nullopt;
}

std::uint64_t most_bytes_of(CudaAlgorithm algorithm, std::uint32_t ranks) {
  // An area per rank in room that does not grow with them.
  if (algorithm == CudaAlgorithm::OneShotLl128) return max_one_shot_ll128_bytes(ranks);
  if (algorithm == CudaAlgorithm::CopyEngine) return max_copy_engine_bytes(ranks);
  return entry_of(algorithm).max_bytes;
}

Status serves(CudaAlgorithm algorithm, Codec codec) {
  const CudaAlgorithmEntry& entry = entry_of(algorithm);
  if (has_bit(entry.codecs, static_cast<unsigned>(codec))) return {};
  return error(ErrorCode::InvalidArgument, Reason::Unsupported, entry.name,
               " is not compiled for codec ", text_of(codec), " (number ",
               static_cast<unsigned>(codec), "): ask for no codec");
}

Status can_launch(CudaAlgorithm algorithm, std::uint64_t bytes, std::uint32_t ranks, Codec codec) {
  const CudaAlgorithmEntry& entry = entry_of(algorithm);
  if (ranks < entry.min_ranks || ranks > entry.max_ranks) {
    return error(ErrorCode::InvalidArgument, Reason::BadValue, entry.name, " takes ",
                 entry.min_ranks, " to ", entry.max_ranks, " ranks, not ", ranks);
  }
  ARC_RETURN_IF_ERROR(serves(algorithm, codec));
  const std::uint64_t most = most_bytes_of(algorithm, ranks);
  if (most != 0 && bytes > most) {
    return error(ErrorCode::OutOfRange, Reason::BadValue, entry.name, " takes up to ", most,
                 " bytes between ", ranks, " ranks, not ", bytes);
  }
  return {};
}

bool can_run(CudaAlgorithm algorithm, CudaAbilities abilities) {
  const CudaAlgorithmEntry& entry = entry_of(algorithm);
  return abilities.atomic_128b_stores || !entry.needs_atomic_128b_stores;
}

// What is the next fastest of the sizes for which those with slots are chosen.
CudaAlgorithm without_slots(CudaAlgorithm algorithm, std::uint32_t ranks) {
  if (!entry_of(algorithm).needs_slots) return algorithm;
  return ranks == 2 ? CudaAlgorithm::TwoShot : CudaAlgorithm::Flash;
}

CudaAlgorithm algorithm_among(CudaAbilities abilities, CudaAlgorithm algorithm,
                              std::uint64_t bytes) {
  if (can_run(algorithm, abilities)) return algorithm;
  return bytes <= kMaxLl16Bytes ? CudaAlgorithm::OneShotLl16 : CudaAlgorithm::TwoShot;
}

}  // namespace arcomm
