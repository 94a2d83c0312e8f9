#include "kernels/host/launch.h"

#include <algorithm>

#include "kernels/codec/format.h"
#include "kernels/host/reduce.h"
#include "kernels/partition.h"

namespace arcomm {

namespace {

// Blocks that share a scale are not cut.
std::uint64_t whole_blocks(std::uint64_t elements, Codec codec) {
  if (codec == Codec::None) return elements;
  return (elements + kCodecBlock - 1) / kCodecBlock * kCodecBlock;
}

}  // namespace

void all_reduce_range(const Choice& choice, const AllReduceArgs& args, std::uint64_t first,
                      std::uint64_t last) {
  if (first >= last) return;
  const host::ReduceCall call{.args = args,
                              .first = first,
                              .last = last,
                              .non_temporal = choice.algorithm == Algorithm::TiledStreaming};
  if (args.codec != Codec::None) return host::reduce_coded(call);
  switch (args.dtype) {
    case DType::Float16:
    case DType::BFloat16:
      return host::reduce_half(call);
    case DType::Float32:
    case DType::Float64:
      return host::reduce_float(call);
    case DType::Int8:
    case DType::Uint8:
    case DType::Int32:
    case DType::Uint32:
    case DType::Int64:
    case DType::Uint64:
      return host::reduce_integer(call);
  }
}

void TileCursor::start(const Choice& choice, const AllReduceArgs& args) {
  elements_per_tile_ = entry_of(choice.algorithm).is_tiled
                           ? whole_blocks(tile_elements(args.dtype, choice.tile_bytes), args.codec)
                           : std::max<std::uint64_t>(args.count, 1);
  tiles_ = tile_count(args.count, elements_per_tile_);
  next_.store(0, std::memory_order_relaxed);
  ended_.store(0, std::memory_order_relaxed);
  limit_.store(tiles_, std::memory_order_relaxed);
}

bool TileCursor::pull(const Choice& choice, const AllReduceArgs& args) {
  // Looked at first, so that late pullers do not count on and on.
  if (next_.load(std::memory_order_relaxed) >= tiles_) return false;
  const std::uint64_t tile = next_.fetch_add(1, std::memory_order_relaxed);
  if (tile >= tiles_) return false;
  const ElementRange range = tile_range(args.count, elements_per_tile_, tile);
  all_reduce_range(choice, args, range.first, range.last);
  ended_.fetch_add(1, std::memory_order_release);  // pairs with finished()'s acquire
  return true;
}

void TileCursor::stop() {
  // Far beyond any number of tiles, with room for the pullers that still count.
  constexpr std::uint64_t kUsedUp = std::uint64_t{1} << 62;
  const std::uint64_t handed_out = next_.exchange(kUsedUp, std::memory_order_relaxed);
  if (handed_out < tiles_) limit_.store(handed_out, std::memory_order_release);
}

bool TileCursor::finished() const {
  return ended_.load(std::memory_order_acquire) == limit_.load(std::memory_order_acquire);
}

}  // namespace arcomm
