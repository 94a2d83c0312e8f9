// How GPUs of several nodes do an AllReduce: all of them by exchange (network_choice.h), with a
// codec or without, and how it is cut. The same on all nodes, since it follows from the operation,
// the nodes and the policy of the communicator alone. daemon/exec/gpu/network runs it. Pure; any
// thread.
#pragma once

#include <algorithm>
#include <cstdint>

#include "daemon/plan/network/host_window.h"
#include "daemon/plan/network/network_choice.h"
#include "daemon/plan/network/network_question.h"
#include "kernels/args.h"
#include "kernels/codec/format.h"
#include "kernels/partition.h"

namespace arcomm {

struct GpuExchange {
  // The ring's kernel is there (kernels/network), and nothing launches it.
  static constexpr NetworkAlgorithm kAlgorithm = NetworkAlgorithm::Exchange;
  static constexpr std::uint32_t kMostLanes = 32;
  static constexpr std::uint32_t kBlocksOfALane = 2;  // one stages, one combines

  // Those of a communicator, which smaller operations use in part; `asked`: net.gpu_lanes. A block
  // copies some 10 GB/s over PCIe, and a chunk on a stream takes long to get there: as many lanes
  // as there usually are streams. Each has slots for each node and way: among many nodes, fewer.
  static constexpr std::uint32_t lanes_among(std::uint32_t nodes, std::uint64_t asked) {
    if (asked != 0) return static_cast<std::uint32_t>(std::min<std::uint64_t>(asked, kMostLanes));
    return nodes <= 4 ? 8 : 4;
  }
  // `most_lanes`: lanes_among().
  static constexpr GpuExchange of(const NetworkQuestion& question, std::uint32_t most_lanes);

  constexpr std::uint32_t blocks() const { return kBlocksOfALane * lanes; }

  // Elements of partial results, as they travel without a codec. A node of several ranks sends
  // accumulators, and so all nodes do where one has several.
  DType partials = DType::Float32;
  std::uint32_t slot_bytes = 0;  // a chunk's most
  std::uint64_t chunk_elements = 0;
  std::uint64_t chunks = 0;  // to each peer
  std::uint32_t lanes = 0;   // that carry any
};

constexpr GpuExchange GpuExchange::of(const NetworkQuestion& question, std::uint32_t most_lanes) {
  // Below the first a lane has few chunks, and while one is on its way the next should be staged
  // and the last combined.
  constexpr std::uint64_t kManyBytes = std::uint64_t{4} << 20;
  constexpr std::uint32_t kFewBytes = std::uint32_t{64} << 10;
  GpuExchange cut;
  cut.partials = question.one_seat_each ? question.dtype : accumulator_of(question.dtype);
  cut.slot_bytes = slot_bytes_among(question.nodes);
  // With a codec as what has 16 bits an element, more than any code with its part of a scale: to
  // encode and to decode takes its time by elements, whatever they come to.
  const std::size_t cut_bytes = question.codec == Codec::None ? size_of(cut.partials) : 2;
  const bool is_large = question.count * cut_bytes >= kManyBytes;
  cut.chunk_elements = arcomm::chunk_elements(
      question.count, cut_bytes, is_large ? cut.slot_bytes : std::min(cut.slot_bytes, kFewBytes));
  cut.chunks = tile_count(question.count, cut.chunk_elements);
  cut.lanes = static_cast<std::uint32_t>(std::min<std::uint64_t>(most_lanes, cut.chunks));
  return cut;
}

// Of chunks that are cut so: they fit, and are whole blocks.
static_assert(kMostBlockBytes <= 2 * kCodecBlock && kCacheLineBytes % kCodecBlock == 0);

}  // namespace arcomm
