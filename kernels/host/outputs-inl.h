// Where a block's result goes. Compiled once per instruction set.
#if defined(ARCOMM_KERNELS_HOST_OUTPUTS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ARCOMM_KERNELS_HOST_OUTPUTS_INL_H_
#undef ARCOMM_KERNELS_HOST_OUTPUTS_INL_H_
#else
#define ARCOMM_KERNELS_HOST_OUTPUTS_INL_H_
#endif

#include <cstdint>

#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace arcomm::host::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

template <typename Stored>
struct Outputs {
  Stored* const* pointers;  // one per output
  std::uint32_t count;
  std::uint64_t first;  // element at which the block starts

  HWY_INLINE Stored* operator[](std::uint32_t r) const { return pointers[r] + first; }
};

// Highway streams no less than 16 bytes, so shorter vectors are stored as usual.
template <bool kNonTemporal, class D, class V>
HWY_INLINE void store(D d, V v, hn::TFromD<D>* to) {
  if constexpr (kNonTemporal && hn::MaxLanes(D()) * sizeof(hn::TFromD<D>) >= 16) {
    hn::Stream(v, d, to);
  } else {
    hn::StoreU(v, d, to);
  }
}

// Four neighbouring vectors to every output.
template <bool kNonTemporal, class D, class V>
HWY_INLINE void store_four(D d, V a, V b, V c, V e, Outputs<hn::TFromD<D>> outputs) {
  const std::size_t n = hn::Lanes(d);
  for (std::uint32_t r = 0; r < outputs.count; ++r) {
    auto* out = outputs[r];
    store<kNonTemporal>(d, a, out);
    store<kNonTemporal>(d, b, out + n);
    store<kNonTemporal>(d, c, out + 2 * n);
    store<kNonTemporal>(d, e, out + 3 * n);
  }
}

}  // namespace arcomm::host::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per target
