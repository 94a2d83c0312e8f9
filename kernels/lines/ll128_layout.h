// How the LL128 algorithms lay data out in lines and lines in the scratch: pure arithmetic, proven
// in tests/unit/kernels.
//
// A line is 128 bytes, of which the last 4 are the flag. It arrives whole, so a reader that sees
// the flag has the data. A packet is what a warp stores with two instructions of 16 bytes per lane:
// eight lines, 992 bytes of data. Lane l stores into line l / 8 and into line 4 + l / 8. Data goes
// in vectors of 16 bytes, two to a lane. The last lane has no data of its own: in its place travel
// the words that the flags displace from the vectors of lanes 7, 15 and 23.
#pragma once

#include <algorithm>
#include <cstdint>

#include "proto/types.h"

namespace arcomm {

inline constexpr std::uint32_t kLl128Lanes = 32;  // a warp
inline constexpr std::uint64_t kLl128LineBytes = 128;
inline constexpr std::uint64_t kLl128PacketBytes = 8 * kLl128LineBytes;
inline constexpr std::uint64_t kLl128PacketData = 8 * (kLl128LineBytes - 4);

constexpr bool ll128_has_flag(std::uint32_t lane) {
  return lane % 8 == 7;
}
constexpr bool ll128_has_data(std::uint32_t lane) {
  return lane + 1 < kLl128Lanes;
}
// Which vectors of a packet's data a lane has, if it has data.
constexpr std::uint32_t ll128_first_vector(std::uint32_t lane) {
  return lane;
}
constexpr std::uint32_t ll128_second_vector(std::uint32_t lane) {
  return kLl128Lanes - 1 + lane;
}
constexpr std::uint64_t ll128_packets(std::uint64_t bytes) {
  return (bytes + kLl128PacketData - 1) / kLl128PacketData;
}

// What fits into one half of the scratch's region: in one hop every rank's input, in two hops every
// rank's part of a shard and every shard's result. Areas move with nothing but the number of ranks.
constexpr std::uint64_t max_one_shot_ll128_bytes(std::uint32_t ranks) {
  return 8ull * 1024 * 1024 / ranks;
}
inline constexpr std::uint64_t kMaxTwoShotLl128Bytes = 4ull * 1024 * 1024;

constexpr std::uint64_t one_shot_area_packets(std::uint32_t ranks) {
  return ll128_packets(max_one_shot_ll128_bytes(ranks));
}
// Shards are whole cache lines of 64 bytes, the first of them one longer where they do not divide.
constexpr std::uint64_t two_shot_area_packets(std::uint32_t ranks) {
  constexpr std::uint64_t kCacheLine = 64, kLines = kMaxTwoShotLl128Bytes / kCacheLine;
  return ll128_packets((kLines + ranks - 1) / ranks * kCacheLine);
}
constexpr std::uint64_t ll128_half_packets() {
  std::uint64_t most = 0;
  for (std::uint32_t ranks = 2; ranks <= kMaxGpuRanks; ++ranks) {
    most = std::max({most, ranks * one_shot_area_packets(ranks),
                     std::uint64_t{2} * ranks * two_shot_area_packets(ranks)});
  }
  return most;
}
inline constexpr std::uint64_t kLl128HalfBytes = ll128_half_packets() * kLl128PacketBytes;

// Where a packet lies in the region, in packets from its start. Halves alternate by epoch.
constexpr std::uint64_t ll128_half(std::uint32_t epoch) {
  return (epoch & 1U) * ll128_half_packets();
}
// `from`: the rank whose input it is.
constexpr std::uint64_t one_shot_area(std::uint32_t epoch, std::uint32_t ranks,
                                      std::uint32_t from) {
  return ll128_half(epoch) + from * one_shot_area_packets(ranks);
}
// `from`: the rank whose part of the reader's shard it is.
constexpr std::uint64_t two_shot_part_area(std::uint32_t epoch, std::uint32_t ranks,
                                           std::uint32_t from) {
  return ll128_half(epoch) + from * two_shot_area_packets(ranks);
}
// `owner`: the rank that reduced the shard.
constexpr std::uint64_t two_shot_result_area(std::uint32_t epoch, std::uint32_t ranks,
                                             std::uint32_t owner) {
  return ll128_half(epoch) + (ranks + owner) * two_shot_area_packets(ranks);
}

}  // namespace arcomm
