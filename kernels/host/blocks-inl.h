// The one loop of the host kernels, compiled once per instruction set: read a block from every
// input in order, combine in registers, write the block to every output. n reads and m writes of
// memory, nothing in between; a block is read from all inputs before it is written to any output,
// hence in place works.
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
#include "kernels/host/outputs-inl.h"
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

// In, Out: how a block of four vectors lies in memory (Stored) and in registers (D, the same of
// both): In::load<0> to load<3> read its parts, and Out::store_all writes the whole to every
// output. The parts of one format need not be neighbours; those of two formats are. Op:
// combine(d, so_far, next) and finish(d, result, divisor). kRanks: so many inputs and outputs,
// known at compile time, or 0.
template <typename In, typename Out, typename Op, std::uint32_t kRanks>
class Blocks {
 public:
  using From = typename In::Stored;
  using To = typename Out::Stored;
  using D = typename In::D;

  HWY_INLINE explicit Blocks(const ReduceCall& call)
      : inputs_(call.args.num_inputs),
        outputs_(call.args.num_outputs),
        divisor_(call.args.divisor),
        count_(call.last - call.first) {
    std::uint32_t r = 0;
    do {  // at least one
      in_[r] = static_cast<const From*>(call.args.inputs[r]) + call.first;
    } while (++r < inputs());
    r = 0;
    do {
      out_[r] = static_cast<To*>(call.args.outputs[r]) + call.first;
    } while (++r < outputs());
  }

  HWY_INLINE void run(bool non_temporal) const {
    std::uint64_t i = 0;
    if (non_temporal && worth_streaming()) {
      const std::uint64_t head = std::min(elements_to_line(out_[0]), count_);
      while (i < head) i += part(i, head - i);
      for (; count_ - i >= elements(); i += elements()) block<true>(i);
      hwy::FlushStream();  // the results are visible before the tile counts as done
    } else {
      for (; count_ - i >= elements(); i += elements()) block<false>(i);
    }
    while (i < count_) i += part(i, count_ - i);
  }

 private:
  static constexpr std::size_t kMaxElements = 4 * hn::MaxLanes(D());  // of a block

  HWY_INLINE std::uint32_t inputs() const { return kRanks != 0 ? kRanks : inputs_; }
  HWY_INLINE std::uint32_t outputs() const { return kRanks != 0 ? kRanks : outputs_; }
  static HWY_INLINE std::uint64_t elements() { return 4 * hn::Lanes(D()); }

  // Stores around the caches need aligned lines; and a line that was just read is in the cache, so
  // that throwing it out (in place) costs more than it saves.
  HWY_INLINE bool worth_streaming() const {
    for (std::uint32_t r = 0; r < outputs(); ++r) {
      if (r < inputs() && static_cast<const void*>(in_[r]) == out_[r]) return false;
      if (elements_to_line(out_[r]) != elements_to_line(out_[0])) return false;
    }
    return true;
  }

  // Four vectors at once: loads of one rank overlap, and a block covers whole cache lines.
  template <bool kNonTemporal>
  HWY_INLINE void block(std::uint64_t i) const {
    const D d;
    auto a = In::template load<0>(d, in_[0] + i);
    auto b = In::template load<1>(d, in_[0] + i);
    auto c = In::template load<2>(d, in_[0] + i);
    auto e = In::template load<3>(d, in_[0] + i);
    for (std::uint32_t r = 1; r < inputs(); ++r) combine_next(in_[r] + i, a, b, c, e);
    finish<kNonTemporal>(a, b, c, e, {out_, outputs(), i});
  }

  // At most a block of the `left` elements at i: the same instructions as in block() between what
  // reads and writes, so that an element's result does not depend on where a range was cut.
  // Returns how many.
  HWY_NOINLINE std::uint64_t part(std::uint64_t i, std::uint64_t left) const {
    const std::uint64_t count = std::min(left, elements());
    if constexpr (In::kTakesSome && Out::kTakesSome) {
      some(i, count);
    } else {
      through_copy(i, count);
    }
    return count;
  }

  HWY_INLINE void some(std::uint64_t i, std::uint64_t count) const {
    const D d;
    auto a = In::template load_some<0>(d, in_[0] + i, count);
    auto b = In::template load_some<1>(d, in_[0] + i, count);
    auto c = In::template load_some<2>(d, in_[0] + i, count);
    auto e = In::template load_some<3>(d, in_[0] + i, count);
    for (std::uint32_t r = 1; r < inputs(); ++r) {
      const From* in = in_[r] + i;
      a = Op::combine(d, a, In::template load_some<0>(d, in, count));
      b = Op::combine(d, b, In::template load_some<1>(d, in, count));
      c = Op::combine(d, c, In::template load_some<2>(d, in, count));
      e = Op::combine(d, e, In::template load_some<3>(d, in, count));
    }
    a = Op::finish(d, a, divisor_);
    b = Op::finish(d, b, divisor_);
    c = Op::finish(d, c, divisor_);
    e = Op::finish(d, e, divisor_);
    for (std::uint32_t r = 0; r < outputs(); ++r) {
      To* out = out_[r] + i;
      Out::template store_some<0>(d, a, out, count);
      Out::template store_some<1>(d, b, out, count);
      Out::template store_some<2>(d, c, out, count);
      Out::template store_some<3>(d, e, out, count);
    }
  }

  // Through a padded copy.
  HWY_INLINE void through_copy(std::uint64_t i, std::uint64_t count) const {
    const D d;
    const std::size_t bytes = count * sizeof(From);
    HWY_ALIGN From padded[kMaxElements] = {};
    std::memcpy(padded, in_[0] + i, bytes);
    auto a = In::template load<0>(d, padded);
    auto b = In::template load<1>(d, padded);
    auto c = In::template load<2>(d, padded);
    auto e = In::template load<3>(d, padded);
    for (std::uint32_t r = 1; r < inputs(); ++r) {
      std::memcpy(padded, in_[r] + i, bytes);
      combine_next(padded, a, b, c, e);
    }
    HWY_ALIGN To result[kMaxElements];
    To* const only[] = {result};
    finish<false>(a, b, c, e, {only, 1, 0});
    for (std::uint32_t r = 0; r < outputs(); ++r) {
      std::memcpy(out_[r] + i, result, count * sizeof(To));
    }
  }

  template <class V>
  static HWY_INLINE void combine_next(const From* in, V& a, V& b, V& c, V& e) {
    const D d;
    a = Op::combine(d, a, In::template load<0>(d, in));
    b = Op::combine(d, b, In::template load<1>(d, in));
    c = Op::combine(d, c, In::template load<2>(d, in));
    e = Op::combine(d, e, In::template load<3>(d, in));
  }

  template <bool kNonTemporal, class V>
  HWY_INLINE void finish(V a, V b, V c, V e, Outputs<To> to) const {
    const D d;
    Out::template store_all<kNonTemporal>(d, Op::finish(d, a, divisor_), Op::finish(d, b, divisor_),
                                          Op::finish(d, c, divisor_), Op::finish(d, e, divisor_),
                                          to);
  }

  std::uint32_t inputs_, outputs_, divisor_;
  std::uint64_t count_;
  const From* in_[kRanks != 0 ? kRanks : kMaxRanks];
  To* out_[kRanks != 0 ? kRanks : kMaxRanks];
};

template <typename In, typename Out, typename Op>
HWY_INLINE void reduce_between(const ReduceCall& call) {
  Blocks<In, Out, Op, 0>(call).run(call.non_temporal);
}
template <typename Format, typename Op>
HWY_INLINE void reduce_any_ranks(const ReduceCall& call) {
  reduce_between<Format, Format, Op>(call);
}

// For the combinations that inference uses most: the rank loop unrolled, pointers in registers.
template <typename Format, typename Op>
HWY_INLINE void reduce_few_ranks(const ReduceCall& call) {
  if (call.args.num_inputs != call.args.num_outputs) return reduce_any_ranks<Format, Op>(call);
  switch (call.args.num_inputs) {
    case 2:
      return Blocks<Format, Format, Op, 2>(call).run(call.non_temporal);
    case 3:
      return Blocks<Format, Format, Op, 3>(call).run(call.non_temporal);
    case 4:
      return Blocks<Format, Format, Op, 4>(call).run(call.non_temporal);
    case 8:
      return Blocks<Format, Format, Op, 8>(call).run(call.non_temporal);
    default:  // a number, not an enum
      return reduce_any_ranks<Format, Op>(call);
  }
}

}  // namespace arcomm::host::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per target
