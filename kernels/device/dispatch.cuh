// From a type, an operation and a number of ranks known at run time to the kernel compiled for
// them.
#pragma once

#include <cuda_runtime_api.h>

#include "kernels/device/element.cuh"

namespace arcomm::device {

template <typename Format, typename Visit>
constexpr decltype(auto) with_op(ReduceOp op, Visit&& visit) {
  switch (op) {
    case ReduceOp::Sum:
      return visit.template operator()<Format, ReduceOp::Sum>();
    case ReduceOp::Prod:
      return visit.template operator()<Format, ReduceOp::Prod>();
    case ReduceOp::Min:
      return visit.template operator()<Format, ReduceOp::Min>();
    case ReduceOp::Max:
      return visit.template operator()<Format, ReduceOp::Max>();
    case ReduceOp::Avg:
      return visit.template operator()<Format, ReduceOp::Avg>();
  }
  __builtin_unreachable();  // admitted requests name one of these
}

// visit.operator()<Format, kOp>().
template <typename Visit>
constexpr decltype(auto) with_kernel(DType dtype, ReduceOp op, Visit&& visit) {
  switch (dtype) {
    case DType::Float16:
      return with_op<Float16>(op, visit);
    case DType::BFloat16:
      return with_op<BFloat16>(op, visit);
    case DType::Float32:
      return with_op<Plain<float>>(op, visit);
    case DType::Float64:
      return with_op<Plain<double>>(op, visit);
    case DType::Int8:
      return with_op<Plain<std::int8_t>>(op, visit);
    case DType::Uint8:
      return with_op<Plain<std::uint8_t>>(op, visit);
    case DType::Int32:
      return with_op<Plain<std::int32_t>>(op, visit);
    case DType::Uint32:
      return with_op<Plain<std::uint32_t>>(op, visit);
    case DType::Int64:
      return with_op<Plain<std::int64_t>>(op, visit);
    case DType::Uint64:
      return with_op<Plain<std::uint64_t>>(op, visit);
  }
  __builtin_unreachable();
}

// visit.operator()<Format>(), of the types that codecs take (codec_serves() in proto/types.h).
// cudaErrorNotSupported: it is none of them.
template <typename Visit>
cudaError_t with_coded_type(DType dtype, Visit&& visit) {
  switch (dtype) {
    case DType::Float16:
      return visit.template operator()<Float16>();
    case DType::BFloat16:
      return visit.template operator()<BFloat16>();
    case DType::Float32:
      return visit.template operator()<Plain<float>>();
    case DType::Float64:
    case DType::Int8:
    case DType::Uint8:
    case DType::Int32:
    case DType::Uint32:
    case DType::Int64:
    case DType::Uint64:
      break;
  }
  return cudaErrorNotSupported;
}

// Sums of the types that inference uses: worth kernels for the numbers of ranks that are usual.
template <typename Format, ReduceOp kOp>
inline constexpr bool kIsUsual = kOp == ReduceOp::Sum && (sizeof(typename Format::Stored) == 2 ||
                                                          std::is_same_v<Format, Plain<float>>);

// visit.operator()<kRanks>(): the number of ranks where kernels are compiled for it, or 0. Loads of
// all ranks are then in flight at once.
template <typename Format, ReduceOp kOp, typename Visit>
constexpr auto with_ranks(std::uint32_t ranks, Visit&& visit) {
  if constexpr (kIsUsual<Format, kOp>) {
    if (ranks == 2) return visit.template operator()<2>();
    if (ranks == 4) return visit.template operator()<4>();
    if (ranks == 8) return visit.template operator()<8>();
  }
  return visit.template operator()<0>();
}

// visit(dtype, op) for all there are.
template <typename Visit>
void for_each_kernel(Visit&& visit) {
  for (unsigned dtype = 0; dtype < kDTypes; ++dtype) {
    for (unsigned op = 0; op < kReduceOps; ++op)
      visit(static_cast<DType>(dtype), static_cast<ReduceOp>(op));
  }
}

}  // namespace arcomm::device
