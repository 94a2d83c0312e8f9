#include "daemon/exec/net/operations/network_operation.h"

#include <algorithm>

#include "kernels/partition.h"

namespace arcomm {

std::uint64_t chunk_elements(std::uint64_t elements, std::size_t wire_bytes,
                             std::uint32_t slot_bytes) {
  constexpr std::uint64_t kLeastBytes = std::uint64_t{16} << 10, kPieces = 8;
  const std::uint64_t piece = elements * wire_bytes / kPieces;
  const std::uint64_t bytes = std::clamp<std::uint64_t>(piece, kLeastBytes, slot_bytes);
  // Whole cache lines of every type, and so of results, too, whose elements may be smaller.
  return bytes / wire_bytes / kCacheLineBytes * kCacheLineBytes;
}

}  // namespace arcomm
