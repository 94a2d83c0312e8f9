// The loop of host kernels with a codec, compiled once per instruction set: a block of every input,
// encoded or about to be, is decoded, and added in order; then elements are written to every
// output, or encoded bytes to one. A block is read from all inputs before it is written to any
// output, hence in place works.
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
    switch (args_.stage) {
      case ReduceStage::Whole:
        return each(first, last, [this](std::uint64_t at, std::uint64_t n) { whole(at, n); });
      case ReduceStage::Partial:
        return each(first, last, [this](std::uint64_t at, std::uint64_t n) { partial(at, n); });
      case ReduceStage::Final:
        return each(first, last, [this](std::uint64_t at, std::uint64_t n) { finish(at, n); });
      case ReduceStage::Recode:
        return each(first, last, [this](std::uint64_t at, std::uint64_t) { recode(at); });
    }
  }

 private:
  template <typename Block>
  static HWY_INLINE void each(std::uint64_t first, std::uint64_t last, const Block& block) {
    for (; last - first >= kCodecBlock; first += kCodecBlock) block(first, kCodecBlock);
    if (first < last) block(first, last - first);
  }

  HWY_INLINE void whole(std::uint64_t first, std::uint64_t count) const {
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

  HWY_INLINE void partial(std::uint64_t first, std::uint64_t count) const {
    const D d;
    HWY_ALIGN float sum[kBlockRoom];
    read(static_cast<const Stored*>(args_.inputs[0]) + first, count, sum);
    for (std::uint32_t r = 1; r < args_.num_inputs; ++r) {
      HWY_ALIGN float values[kBlockRoom];
      read(static_cast<const Stored*>(args_.inputs[r]) + first, count, values);
      for (std::size_t i = 0; i < kCodecBlock; i += hn::Lanes(d)) {
        hn::Store(hn::Add(hn::Load(d, sum + i), hn::Load(d, values + i)), d, sum + i);
      }
    }
    if (rotated_) transform(sum);
    quantizer_.encode(sum, static_cast<std::byte*>(args_.outputs[0]) + offset_of(first));
  }

  HWY_INLINE void finish(std::uint64_t first, std::uint64_t count) const {
    HWY_ALIGN float sum[kBlockRoom];
    decode_all(first, sum);
    if (rotated_) transform(sum);
    write(sum, first, count);
  }

  HWY_INLINE void recode(std::uint64_t first) const {
    const D d;
    HWY_ALIGN float sum[kBlockRoom];
    decode_all(first, sum);
    if (args_.op == ReduceOp::Avg) {
      const V divisor = hn::Set(d, static_cast<float>(args_.divisor));
      for (std::size_t i = 0; i < kCodecBlock; i += hn::Lanes(d)) {
        hn::Store(hn::Div(hn::Load(d, sum + i), divisor), d, sum + i);
      }
    }
    quantizer_.encode(sum, static_cast<std::byte*>(args_.outputs[0]) + offset_of(first));
  }

  HWY_INLINE void decode_all(std::uint64_t first, float* HWY_RESTRICT sum) const {
    for (std::uint32_t r = 0; r < args_.num_inputs; ++r) {
      quantizer_.decode_bytes(static_cast<const std::byte*>(args_.inputs[r]) + offset_of(first),
                              sum, r == 0);
    }
  }
  // Of an element's block in encoded bytes.
  HWY_INLINE std::uint64_t offset_of(std::uint64_t first) const {
    return first / kCodecBlock * quantizer_.block_bytes();
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
