// The one loop of the host kernels, compiled once per instruction set: read a block from every rank
// in rank order, combine in registers, write the block to every rank. n reads and n writes of
// memory, nothing in between; a block is read from all ranks before it is written to any, hence in
// place works.
//
// Included again for each target by hwy/foreach_target.h; so no #pragma once but Highway's guard.
#if defined(ARCOMM_KERNELS_HOST_BLOCKS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ARCOMM_KERNELS_HOST_BLOCKS_INL_H_
#undef ARCOMM_KERNELS_HOST_BLOCKS_INL_H_
#else
#define ARCOMM_KERNELS_HOST_BLOCKS_INL_H_
#endif

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "hwy/cache_control.h"
#include "hwy/highway.h"
#include "kernels/host/reduce.h"
#include "kernels/partition.h"

HWY_BEFORE_NAMESPACE();
namespace arcomm::host::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Elements from the start of `pointer` to the next cache line.
template <typename T>
HWY_INLINE std::uint64_t elements_to_line(const T* pointer) {
  const std::uint64_t past = reinterpret_cast<std::uintptr_t>(pointer) % kCacheLineBytes;
  return past == 0 ? 0 : (kCacheLineBytes - past) / sizeof(T);
}

// Format: how elements lie in memory (Stored) and in registers (D), with load, store, stream.
// Op: combine(d, so_far, next) and finish(d, result, ranks). kRanks: known at compile time, or 0.
template <typename Format, typename Op, std::uint32_t kRanks>
class Blocks {
 public:
  using Stored = typename Format::Stored;
  using D = typename Format::D;

  HWY_INLINE explicit Blocks(const ReduceCall& call)
      : ranks_(kRanks != 0 ? kRanks : call.args.ranks), count_(call.last - call.first) {
    std::uint32_t r = 0;
    do {  // at least one rank
      in_[r] = static_cast<const Stored*>(call.args.send[r]) + call.first;
      out_[r] = static_cast<Stored*>(call.args.recv[r]) + call.first;
    } while (++r < ranks());
  }

  HWY_INLINE void run(bool non_temporal) const {
    std::uint64_t i = 0;
    if (non_temporal && same_alignment()) {
      const std::uint64_t head = std::min(elements_to_line(out_[0]), count_);
      while (i < head) i += part(i, head - i);
      for (; count_ - i >= 4 * lanes(); i += 4 * lanes()) block<true>(i);
      hwy::FlushStream();  // the results are visible before the tile counts as done
    } else {
      for (; count_ - i >= 4 * lanes(); i += 4 * lanes()) block<false>(i);
    }
    while (i < count_) i += part(i, count_ - i);
  }

 private:
  HWY_INLINE std::uint32_t ranks() const { return kRanks != 0 ? kRanks : ranks_; }
  static HWY_INLINE std::uint64_t lanes() { return hn::Lanes(D()); }

  HWY_INLINE bool same_alignment() const {
    for (std::uint32_t r = 1; r < ranks(); ++r) {
      if ((reinterpret_cast<std::uintptr_t>(out_[r]) - reinterpret_cast<std::uintptr_t>(out_[0])) %
              kCacheLineBytes !=
          0) {
        return false;
      }
    }
    return true;
  }

  // Four vectors at once: loads of one rank overlap, and a block covers whole cache lines.
  template <bool kNonTemporal>
  HWY_INLINE void block(std::uint64_t i) const {
    const D d;
    const std::uint64_t n = lanes();
    auto a = Format::load(d, in_[0] + i);
    auto b = Format::load(d, in_[0] + i + n);
    auto c = Format::load(d, in_[0] + i + 2 * n);
    auto e = Format::load(d, in_[0] + i + 3 * n);
    for (std::uint32_t r = 1; r < ranks(); ++r) {
      const Stored* in = in_[r] + i;
      a = Op::combine(d, a, Format::load(d, in));
      b = Op::combine(d, b, Format::load(d, in + n));
      c = Op::combine(d, c, Format::load(d, in + 2 * n));
      e = Op::combine(d, e, Format::load(d, in + 3 * n));
    }
    const auto ra = Format::narrow(d, Op::finish(d, a, ranks()));
    const auto rb = Format::narrow(d, Op::finish(d, b, ranks()));
    const auto rc = Format::narrow(d, Op::finish(d, c, ranks()));
    const auto re = Format::narrow(d, Op::finish(d, e, ranks()));
    for (std::uint32_t r = 0; r < ranks(); ++r) {
      Stored* out = out_[r] + i;
      Format::template store<kNonTemporal>(d, ra, out);
      Format::template store<kNonTemporal>(d, rb, out + n);
      Format::template store<kNonTemporal>(d, rc, out + 2 * n);
      Format::template store<kNonTemporal>(d, re, out + 3 * n);
    }
  }

  // At most one vector of the `left` elements at i, through a padded copy: the same instructions as
  // in block(), so an element's result does not depend on where a range was cut. Returns how many.
  HWY_NOINLINE std::uint64_t part(std::uint64_t i, std::uint64_t left) const {
    const D d;
    const std::uint64_t n = std::min<std::uint64_t>(left, lanes());
    HWY_ALIGN Stored padded[hn::MaxLanes(D())] = {};
    std::memcpy(padded, in_[0] + i, n * sizeof(Stored));
    auto so_far = Format::load(d, padded);
    for (std::uint32_t r = 1; r < ranks(); ++r) {
      std::memcpy(padded, in_[r] + i, n * sizeof(Stored));
      so_far = Op::combine(d, so_far, Format::load(d, padded));
    }
    Format::template store<false>(d, Format::narrow(d, Op::finish(d, so_far, ranks())), padded);
    for (std::uint32_t r = 0; r < ranks(); ++r) {
      std::memcpy(out_[r] + i, padded, n * sizeof(Stored));
    }
    return n;
  }

  std::uint32_t ranks_;
  std::uint64_t count_;
  const Stored* in_[kRanks != 0 ? kRanks : kMaxRanks];
  Stored* out_[kRanks != 0 ? kRanks : kMaxRanks];
};

template <typename Format, typename Op>
HWY_INLINE void reduce_any_ranks(const ReduceCall& call) {
  Blocks<Format, Op, 0>(call).run(call.non_temporal);
}

// For the combinations that inference uses most: the rank loop unrolled, pointers in registers.
template <typename Format, typename Op>
HWY_INLINE void reduce_few_ranks(const ReduceCall& call) {
  switch (call.args.ranks) {
    case 2:
      return Blocks<Format, Op, 2>(call).run(call.non_temporal);
    case 3:
      return Blocks<Format, Op, 3>(call).run(call.non_temporal);
    case 4:
      return Blocks<Format, Op, 4>(call).run(call.non_temporal);
    case 8:
      return Blocks<Format, Op, 8>(call).run(call.non_temporal);
    default:  // a number, not an enum
      return reduce_any_ranks<Format, Op>(call);
  }
}

}  // namespace arcomm::host::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per target
