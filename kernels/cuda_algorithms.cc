#include <array>

#include "kernels/launch_cuda.h"

namespace arcomm {
namespace {

constexpr std::array kAlgorithms = {
    CudaAlgorithmEntry{CudaAlgorithm::OneShotLl16, "one_shot_ll16", 2, kMaxCudaRanks, kMaxLl16Bytes,
                       false},
    CudaAlgorithmEntry{CudaAlgorithm::TwoShotDirect, "two_shot_direct", 2, kMaxCudaRanks, 0, false},
    CudaAlgorithmEntry{CudaAlgorithm::Stream, "stream", 2, kMaxCudaRanks, 0, false},
    CudaAlgorithmEntry{CudaAlgorithm::Flash, "flash", 2, kMaxCudaRanks, 0, false},
    CudaAlgorithmEntry{CudaAlgorithm::OneShotLl128, "one_shot_ll128", 2, kMaxCudaRanks,
                       max_one_shot_ll128_bytes(2), true},
    CudaAlgorithmEntry{CudaAlgorithm::TwoShotLl128, "two_shot_ll128", 2, kMaxCudaRanks,
                       kMaxTwoShotLl128Bytes, true},
    CudaAlgorithmEntry{CudaAlgorithm::Alone, "alone", 1, 1, 0, false},
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

Status can_launch(CudaAlgorithm algorithm, std::uint64_t bytes, std::uint32_t ranks) {
  const CudaAlgorithmEntry& entry = entry_of(algorithm);
  if (ranks < entry.min_ranks || ranks > entry.max_ranks) {
    return error(ErrorCode::InvalidArgument, Reason::BadValue, entry.name, " takes ",
                 entry.min_ranks, " to ", entry.max_ranks, " ranks, not ", ranks);
  }
  // An area per rank in room that does not grow with them.
  const std::uint64_t most =
      algorithm == CudaAlgorithm::OneShotLl128 ? max_one_shot_ll128_bytes(ranks) : entry.max_bytes;
  if (most != 0 && bytes > most) {
    return error(ErrorCode::OutOfRange, Reason::BadValue, entry.name, " takes up to ", most,
                 " bytes between ", ranks, " ranks, not ", bytes);
  }
  return {};
}

CudaAlgorithm algorithm_without_whole_lines(CudaAlgorithm algorithm, std::uint64_t bytes) {
  if (!entry_of(algorithm).needs_whole_lines) return algorithm;
  return bytes <= kMaxLl16Bytes ? CudaAlgorithm::OneShotLl16 : CudaAlgorithm::TwoShotDirect;
}

Status can_launch(CudaAlgorithm algorithm, const CudaAllReduce& call) {
  if (call.rank >= call.ranks) {
    return error(ErrorCode::InvalidArgument, Reason::BadValue, "rank ", call.rank, " of ",
                 call.ranks, " ranks: they count from 0");
  }
  return can_launch(algorithm, call.count * size_of(call.dtype), call.ranks);
}

}  // namespace arcomm
