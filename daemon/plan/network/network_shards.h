// Which elements of an AllReduce are whose between nodes: shard k is node k's, for direct and ring
// alike. It follows from count, type and number of nodes alone, so that the order in which an
// element is added up does not depend on chunks, staging or settings. A shard is whole cache lines
// of elements, or with a codec whole blocks; those of small counts are empty from the end. Ranges
// are elements of the operation. Pure; any thread; allocates nothing.
#pragma once

#include <algorithm>
#include <cstdint>

#include "daemon/plan/network/network_question.h"
#include "kernels/partition.h"

namespace arcomm {

class NetworkShards {
 public:
  constexpr explicit NetworkShards(const NetworkQuestion& question)
      : NetworkShards(question, std::max(question.nodes, 1U)) {}
  // The same lines in so many parts.
  constexpr NetworkShards(const NetworkQuestion& question, std::uint64_t parts)
      : cut_(question.count, bytes_in_line(question), parts) {}

  // What nothing is cut smaller than.
  static constexpr std::uint64_t elements_in_line(const NetworkQuestion& question) {
    return kCacheLineBytes / bytes_in_line(question);
  }
  constexpr ElementRange of(std::uint64_t node) const { return cut_.of(node); }
  // The first node's: no other is larger.
  constexpr std::uint64_t most_elements() const { return cut_.of(0).size(); }

 private:
  // With a codec a block's elements are taken for a cache line.
  static constexpr std::size_t kBytesInLineOfBlock = kCacheLineBytes / kCodecBlock;
  static_assert(kBytesInLineOfBlock * kCodecBlock == kCacheLineBytes);
  static constexpr std::size_t bytes_in_line(const NetworkQuestion& question) {
    return question.codec == Codec::None ? size_of(question.dtype) : kBytesInLineOfBlock;
  }

  ShardCut<std::uint64_t> cut_;
};

// A range in chunks of equal size, but for the last. Precondition: chunk_elements > 0.
constexpr std::uint64_t chunks_in(ElementRange range, std::uint64_t chunk_elements) {
  return tile_count(range.size(), chunk_elements);
}
// Precondition: chunk < chunks_in(range, chunk_elements).
constexpr ElementRange chunk_of(ElementRange range, std::uint64_t chunk_elements,
                                std::uint64_t chunk) {
  const ElementRange within = tile_range(range.size(), chunk_elements, chunk);
  return {range.first + within.first, range.first + within.last};
}

}  // namespace arcomm
