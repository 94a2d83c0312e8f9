// How GPUs of several nodes do an AllReduce: all of them by exchange (network_choice.h), and how it
// is cut. The same on all nodes, since it follows from the operation and the nodes alone; no
// setting has a say. daemon/exec/gpu/network runs it. Pure; any thread.
#pragma once

#include <algorithm>
#include <cstdint>

#include "daemon/plan/network/host_window.h"
#include "daemon/plan/network/network_choice.h"
#include "daemon/plan/network/network_question.h"
#include "kernels/args.h"
#include "kernels/partition.h"

namespace arcomm {

struct GpuExchange {
  // The ring's kernel is there (kernels/network), and nothing launches it.
  static constexpr NetworkAlgorithm kAlgorithm = NetworkAlgorithm::Exchange;
  // A block copies some 10 GB/s over PCIe; four lanes keep eight streams busy.
  static constexpr std::uint32_t kLanes = 4;
  static constexpr std::uint32_t kBlocksOfALane = 2;                 // one stages, one combines
  static constexpr std::uint32_t kBlocks = kBlocksOfALane * kLanes;  // of a kernel, at most

  static constexpr GpuExchange of(const NetworkQuestion& question);

  // Elements of partial results, as they travel. A node of several ranks sends accumulators, and so
  // all nodes do where one has several.
  DType partials = DType::Float32;
  std::uint32_t slot_bytes = 0;  // a chunk's most
  std::uint64_t chunk_elements = 0;
  std::uint64_t chunks = 0;  // to each peer
  std::uint32_t lanes = 0;   // that carry any
};

constexpr GpuExchange GpuExchange::of(const NetworkQuestion& question) {
  GpuExchange cut;
  cut.partials = question.one_seat_each ? question.dtype : accumulator_of(question.dtype);
  cut.slot_bytes = slot_bytes_among(question.nodes);
  cut.chunk_elements =
      arcomm::chunk_elements(question.count, size_of(cut.partials), cut.slot_bytes);
  cut.chunks = tile_count(question.count, cut.chunk_elements);
  cut.lanes = static_cast<std::uint32_t>(std::min<std::uint64_t>(kLanes, cut.chunks));
  return cut;
}

}  // namespace arcomm
