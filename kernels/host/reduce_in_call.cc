#include "kernels/host/reduce_in_call.h"

#include <cstring>

#include "hwy/cache_control.h"
#include "hwy/highway.h"
#include "kernels/host/float_ops-inl.h"
#include "kernels/host/half_format-inl.h"
#include "kernels/host/integer_ops-inl.h"
#include "kernels/host/plain_format-inl.h"

HWY_BEFORE_NAMESPACE();
namespace arcomm::host::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

void reduce_here(const ReduceCall& call) {
  switch (call.args.dtype) {
    case DType::Float16:
      return reduce_floats<Float16Format>(call);
    case DType::BFloat16:
      return reduce_floats<BFloat16Format>(call);
    case DType::Float32:
      return reduce_floats<PlainFormat<float>>(call);
    case DType::Float64:
      return reduce_floats<PlainFormat<double>>(call);
    default:
      return reduce_integers(call);
  }
}

void copy_around_caches(const std::uint8_t* from, std::uint8_t* to, std::uint64_t bytes) {
  const hn::ScalableTag<std::uint8_t> d;
  const std::size_t lanes = hn::Lanes(d);
  std::uint64_t at = 0;
  for (; at + lanes <= bytes; at += lanes) hn::Stream(hn::LoadU(d, from + at), d, to + at);
  std::memcpy(to + at, from + at, bytes - at);
  hwy::FlushStream();
}

}  // namespace arcomm::host::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

namespace arcomm::host {

bool can_reduce_in_call() {
#if HWY_STATIC_TARGET == HWY_AVX2
  // What that target may use of the processor (hwy/ops/set_macros-inl.h); whoever has AVX2 has
  // F16C.
  static const bool can =
      __builtin_cpu_supports("avx2") != 0 && __builtin_cpu_supports("fma") != 0 &&
      __builtin_cpu_supports("bmi") != 0 && __builtin_cpu_supports("bmi2") != 0 &&
      __builtin_cpu_supports("pclmul") != 0 && __builtin_cpu_supports("aes") != 0;
  return can;
#else
  return true;  // every machine of this kind has them
#endif
}

void copy_for_others(const void* from, void* to, std::uint64_t bytes) {
  constexpr std::uint64_t kLeastAroundCaches = 1024;
  if (bytes == 0) return;
  if (bytes < kLeastAroundCaches) {
    std::memcpy(to, from, bytes);
    return;
  }
  HWY_STATIC_DISPATCH(copy_around_caches)
  (static_cast<const std::uint8_t*>(from), static_cast<std::uint8_t*>(to), bytes);
}

void reduce_in_call(const AllReduceArgs& args) {
  HWY_STATIC_DISPATCH(reduce_here)({.args = args, .first = 0, .last = args.count});
}

}  // namespace arcomm::host
