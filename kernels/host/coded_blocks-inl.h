// The loop of host kernels with a codec, compiled once per instruction set: what a block of every
// input decodes to, added in order, then written to every output. A block is read from all inputs
// before it is written to any output, hence in place works.
#if defined(ARCOMM_KERNELS_HOST_CODED_BLOCKS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ARCOMM_KERNELS_HOST_CODED_BLOCKS_INL_H_
#undef ARCOMM_KERNELS_HOST_CODED_BLOCKS_INL_H_
#else
#define ARCOMM_KERNELS_HOST_CODED_BLOCKS_INL_H_
#endif

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "hwy/highway.h"
#include "kernels/host/float_ops-inl.h"
#include "kernels/host/quantizer-inl.h"
#include "kernels/host/reduce.h"
#include "kernels/host/transform-inl.h"

HWY_BEFORE_NAMESPACE();
namespace arcomm::host::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Format: how a vector lies in memory (Stored) and in registers (D): load<0> and store_one.
template <typename Format, bool kFp8>
class CodedBlocks {
  using Stored = typename Format::Stored;
  using D = typename Format::D;
  using V = typename Format::V;

 public:
  HWY_INLINE CodedBlocks(const ReduceCall& call, const CodecFormat& format)
      : args_(call.args), quantizer_(format), rotated_(format.rotated) {}

  // [first, last) is of whole blocks, but for the operation's last one.
  HWY_INLINE void run(std::uint64_t first, std::uint64_t last) const {
    for (; last - first >= kCodecBlock; first += kCodecBlock) block(first, kCodecBlock);
    if (first < last) block(first, last - first);
  }

 private:
  HWY_INLINE void block(std::uint64_t first, std::uint64_t count) const {
    HWY_ALIGN float sum[kBlockRoom];
    for (std::uint32_t r = 0; r < args_.num_inputs; ++r) {
      HWY_ALIGN float values[kBlockRoom];
      read(static_cast<const Stored*>(args_.inputs[r]) + first, count, values);
      if (rotated_) transform(values);
      quantizer_.decode(values, sum, r == 0);
    }
    if (rotated_) transform(sum);
    write(sum, first, count);
  }

  // Through a copy, so that the last block is made by the same instructions as all others.
  static HWY_INLINE void read(const Stored* from, std::uint64_t count, float* HWY_RESTRICT values) {
    const D d;
    HWY_ALIGN Stored copy[kBlockRoom] = {};
    if (count == kCodecBlock) {
      std::memcpy(copy, from, kCodecBlock * sizeof(Stored));
    } else {
      std::memcpy(copy, from, count * sizeof(Stored));
    }
    for (std::size_t i = 0; i < kCodecBlock; i += hn::Lanes(d)) {
      hn::Store(Format::template load<0>(d, copy + i), d, values + i);
    }
  }

  HWY_INLINE void write(const float* HWY_RESTRICT sum, std::uint64_t first,
                        std::uint64_t count) const {
    const D d;
    HWY_ALIGN Stored result[kBlockRoom];
    const V divisor =
        hn::Set(d, args_.op == ReduceOp::Avg ? static_cast<float>(args_.divisor) : 1.0F);
    const V factor = hn::Set(d, rotated_ ? 1.0F / kCodecBlock : 1.0F);
    for (std::size_t i = 0; i < kCodecBlock; i += hn::Lanes(d)) {
      // A factor and a divisor of 1 change nothing.
      const V value = hn::Div(hn::Mul(hn::Load(d, sum + i), factor), divisor);
      Format::store_one(d, canonical_nan(d, value), result + i);
    }
    for (std::uint32_t r = 0; r < args_.num_outputs; ++r) {
      std::memcpy(static_cast<Stored*>(args_.outputs[r]) + first, result, count * sizeof(Stored));
    }
  }

  const AllReduceArgs& args_;
  const Quantizer<kFp8> quantizer_;
  const bool rotated_;
};

}  // namespace arcomm::host::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per target
