// Runs reductions on the calling thread, on the host. Never blocks, never allocates, never fails:
// the caller has checked the arguments.
//
// What a result is, for every algorithm, tile size, position and instruction set (kernels/README.md
// has the reasons):
//   floats    combined in the inputs' order, which is the ranks'; float16 and bfloat16 in float32,
//             rounded once, to nearest even;
//             a NaN result is the canonical quiet NaN of its type;
//             avg divides by the divisor, the number of ranks, before rounding
//   min, max  a NaN of any rank gives NaN; among equals (-0 and +0) the lowest rank's bits win
//   integers  wrap modulo 2^n; avg is the wrapped sum divided by the divisor, towards zero
// So every rank gets the same bits, run after run. In two stages (args.h), as between nodes:
//   Partial   the inputs combined by the same rules into accumulators: float32 for float16 and
//             bfloat16, else the type itself; not divided, a NaN the canonical one
//   Final     accumulators combined in their order, then divided by the divisor and rounded once
// Integers, min and max give the bits of Whole however neighbouring ranks are grouped into nodes;
// sum, prod and avg of floats where each node has one rank.
// With a codec, inputs are first encoded and decoded, block by block (kernels/codec/README.md). In
// stages:
//   Partial   the inputs combined in float32, in their order, and encoded
//   Final     blocks decoded, combined in their order, turned back, divided and rounded once
//   Recode    blocks decoded, combined in their order, divided and encoded once more, of a rotated
//             codec as the transform that they are; Final of that, as a sum of one, is the result
// Final of Partials of one input each gives the bits of Whole.
#pragma once

#include <atomic>
#include <cstdint>

#include "kernels/args.h"
#include "kernels/catalog.h"

namespace arcomm {

// Reduces elements [first, last) of all inputs and writes them to every output. Calls on
// disjoint ranges may run at once on several threads. Precondition: first <= last <= args.count,
// and what args.h says; with a codec, first and last are multiples of kCodecBlock, but for a last
// of args.count.
void all_reduce_range(const Choice& choice, const AllReduceArgs& args, std::uint64_t first,
                      std::uint64_t last);

// The tiles of one operation, handed out one by one to the threads that ask. Those threads share
// it; start() happens before any of them may see it. It takes whole cache lines, so that two
// operations do not disturb each other.
class alignas(64) TileCursor {
 public:
  // For a choice that is not tiled, the whole operation is one tile. No thread may be at work on
  // the last run.
  void start(const Choice& choice, const AllReduceArgs& args);
  // Reduces the next tile on this thread; false when there was none left (others may still be at
  // work on theirs).
  bool pull(const Choice& choice, const AllReduceArgs& args);
  // No further tile is handed out; those that are out end as usual. Any thread.
  void stop();
  // No tile is out and none will be. Acquires what the pullers wrote: recv may be read, memory may
  // be unmapped.
  bool finished() const;
  std::uint64_t tiles() const { return tiles_; }

 private:
  std::uint64_t elements_per_tile_ = 0;
  std::uint64_t tiles_ = 0;
  alignas(64) std::atomic<std::uint64_t> next_{
      0};  // tiles asked for; beyond tiles_ once they are used up
  alignas(64) std::atomic<std::uint64_t> ended_{0};  // tiles reduced
  std::atomic<std::uint64_t> limit_{0};              // tiles that will ever be handed out
};

}  // namespace arcomm
