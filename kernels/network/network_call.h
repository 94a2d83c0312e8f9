// One node's part of an AllReduce between nodes, as a kernel's blocks (and their host twin,
// daemon/proxy/host/host_producer.h) need it: a plain value. The caller keeps what the pointers
// name alive until all blocks have ended. Counts are elements where nothing else is said.
#pragma once

#include <cstdint>
#include <type_traits>

#include "kernels/partition.h"
#include "proto/gpu/device_fifo.h"
#include "proto/types.h"

namespace arcomm {

// One FIFO, as the kernel's side knows it. Host memory that the GPU reaches has one address for
// both.
struct FifoPort {
  DeviceFifo* fifo = nullptr;
  // Normal: its slots. Offset: the pool. Pointer: registered memory of kFifoSteps * most_bytes, in
  // which received chunks land and the ring stages; the exchange sends partials from where they
  // lie.
  unsigned char* memory = nullptr;
  std::uint64_t memory_bytes = 0;
  std::uint32_t most_bytes = 0;  // of a step
  SlotMode mode = SlotMode::Normal;
  std::int32_t peer = -1;
  // Steps that earlier operations took; the kernel's own count, 0 for a new FIFO.
  std::uint64_t* steps = nullptr;
};

// Several ranks of this node, as its kernel's GPU reaches them: the node's partial is their inputs
// combined in their order, and the result goes to all of them. Elements of the call's type.
struct NetworkSeats {
  std::uint32_t count = 0;   // 0: the partial lies there already, and the result goes to one
  bool is_in_place = false;  // where a result goes, an input lies: the same one, never a part of it
  const void* send[kMaxGpuRanks] = {};
  void* recv[kMaxGpuRanks] = {};
  // Memory of the GPU for a chunk of the partial for each lane, each a multiple of 16 bytes.
  unsigned char* parts = nullptr;
  std::uint64_t part_bytes = 0;
};

struct NetworkCall {
  // This node's ranks combined: elements of `dtype`, or, where it is wide, accumulators of it
  // (kernels/args.h); with a codec elements of `dtype`.
  const void* partial = nullptr;
  // Elements of `dtype`. In place: the partial itself, where both are of one type; never a part of
  // it.
  void* result = nullptr;
  std::uint64_t count = 0;
  std::uint64_t timeout_ns = 0;  // of a block's waits together
  std::uint32_t node = 0, nodes = 1;
  std::uint32_t lanes = 1;
  std::uint32_t divisor = 1;  // of avg
  // Whole cache lines, with a codec whole blocks, too; as they travel, at most most_bytes.
  std::uint64_t chunk_elements = 0;
  // Of a shard, in the ring: chunks of a lane that are on their way at once. At most as many as a
  // FIFO has slots for sure, or all nodes could wait for each other.
  std::uint32_t depth = kFifoSteps;
  DType dtype = DType::Float32;
  ReduceOp op = ReduceOp::Sum;
  bool is_wide = false;             // partials are accumulators: as they travel without a codec
  Codec codec = Codec::None;        // partials travel as encoded blocks (codec/README.md)
  NetworkSeats seats = {};          // with them `partial` is nothing, and `result` the first one's
  const FifoPort* ports = nullptr;  // [lane][peer][direction]; a node has none to itself

  static constexpr std::uint64_t ports_of(std::uint32_t nodes, std::uint32_t lanes) {
    return std::uint64_t{nodes} * lanes * 2;
  }
  constexpr std::uint64_t port_index(std::uint32_t lane, std::uint32_t peer,
                                     FifoDirection direction) const {
    return (std::uint64_t{lane} * nodes + peer) * 2 + static_cast<std::uint64_t>(direction);
  }
  constexpr bool has_seats() const { return seats.count != 0; }
  // Chunk by chunk; else what travels lies in `partial`.
  constexpr bool makes_parts() const { return has_seats() || codec != Codec::None; }
  constexpr bool is_in_place() const { return has_seats() ? seats.is_in_place : partial == result; }
  constexpr const FifoPort& port(std::uint32_t lane, std::uint32_t peer,
                                 FifoDirection direction) const {
    return ports[port_index(lane, peer, direction)];
  }
};
static_assert(std::is_trivially_copyable_v<NetworkCall>);

// Chunks 0, 1, 2, ... of a range are dealt to the lanes in turn: how many of `count` elements one
// gets, and which its n-th is.
constexpr std::uint64_t chunks_of_lane(std::uint64_t count, std::uint64_t chunk_elements,
                                       std::uint32_t lanes, std::uint32_t lane) {
  const std::uint64_t chunks = tile_count(count, chunk_elements);
  return chunks <= lane ? 0 : (chunks - lane - 1) / lanes + 1;
}
constexpr ElementRange chunk_of_lane(std::uint64_t count, std::uint64_t chunk_elements,
                                     std::uint32_t lanes, std::uint32_t lane, std::uint64_t n) {
  return tile_range(count, chunk_elements, lane + n * lanes);
}

}  // namespace arcomm
