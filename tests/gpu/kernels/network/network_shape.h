// One kind of AllReduce between nodes whose kernels share a GPU: what tests and figures choose
// from.
#pragma once

#include <cstddef>
#include <cstdint>
#include <ostream>

#include "kernels/args.h"
#include "kernels/codec/format.h"
#include "proto/gpu/device_fifo.h"
#include "proto/types.h"

namespace arcomm::gpu {

// Around what a kernel may write, and in it before it does.
inline constexpr std::size_t kNodeGuard = 256;
inline constexpr std::byte kNodePoison{0xa5};

struct NetworkShape {
  bool is_ring = false;
  bool is_bidirectional = false;
  SlotMode mode = SlotMode::Normal;
  DType dtype = DType::Float32;
  ReduceOp op = ReduceOp::Sum;
  bool is_wide = false;      // partials are accumulators
  bool is_in_place = false;  // the result goes where the partial is; not with accumulators
  std::uint32_t nodes = 2;
  std::uint32_t lanes = 4;
  std::uint64_t count = 100'000;  // elements
  std::uint64_t chunk_elements = 4096;
  std::uint32_t seats = 0;       // ranks of each node, whose inputs its kernel combines; wide ones
  std::uint32_t pool_share = 4;  // slots of each FIFO in Offset mode, and the ring's depth
  std::uint64_t shift = 0;       // elements by which partial and result are off their alignment
  Codec codec = Codec::None;     // an exchange's: partials travel encoded; wide with seats alone

  // Of what the kernel has for a partial, or makes of seats.
  DType partial_type() const { return is_wide ? accumulator_of(dtype) : dtype; }
  // What so many elements of a partial take as they travel.
  std::size_t wire_bytes(std::uint64_t elements) const {
    return codec == Codec::None ? elements * size_of(partial_type()) : coded_bytes(codec, elements);
  }

  friend std::ostream& operator<<(std::ostream& out, const NetworkShape& shape) {
    out << (!shape.is_ring           ? "exchange"
            : shape.is_bidirectional ? "ring both ways"
                                     : "ring")
        << " of " << shape.nodes << " nodes, " << shape.lanes << " lanes, slot mode "
        << static_cast<std::uint32_t>(shape.mode) << ", " << shape.op << " of " << shape.count
        << ' ' << shape.dtype << (shape.is_wide ? " (accumulators)" : "")
        << (shape.is_in_place ? ", in place" : "");
    if (shape.codec != Codec::None) out << ", codec " << text_of(shape.codec);
    if (shape.seats != 0) out << ", " << shape.seats << " ranks on each";
    if (shape.shift != 0) out << ", off by " << shape.shift;
    return out;
  }
};

}  // namespace arcomm::gpu
