// How an operation above the daemon's limit is cut into requests. Only (count, element size, limit)
// decide, so that every rank cuts alike however its memory is registered.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "proto/types.h"

namespace arcomm::client {

inline constexpr std::uint64_t kSegmentGrainBytes = 4096;
static_assert(kSegmentGrainBytes / sizeof(float) % kCodecBlock == 0, "blocks of codecs stay whole");

struct Segmentation {
  std::uint64_t count = 0;  // elements of the whole operation
  std::uint64_t elements_per_segment = 0;
  std::uint64_t segments = 1;  // a count of 0 is one request: it still synchronises

  std::uint64_t first_element(std::uint64_t segment) const {
    return segment * elements_per_segment;
  }
  std::uint64_t elements(std::uint64_t segment) const {
    return std::min(elements_per_segment, count - first_element(segment));
  }
};

// limit_bytes 0 means no limit. A limit below the grain counts as the grain.
constexpr Segmentation cut(std::uint64_t count, std::size_t element_bytes,
                           std::uint64_t limit_bytes) {
  const std::uint64_t room =
      limit_bytes == 0 ? UINT64_MAX / 2 : std::max(limit_bytes, kSegmentGrainBytes);
  const std::uint64_t per_segment =
      room / kSegmentGrainBytes * (kSegmentGrainBytes / element_bytes);
  if (count <= per_segment) return {count, std::max<std::uint64_t>(count, 1), 1};
  return {count, per_segment, (count - 1) / per_segment + 1};
}

}  // namespace arcomm::client
