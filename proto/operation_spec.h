// What an operation is, apart from where its data lie: what travels from the C ABI through ring and
// plans to the kernels, and what all its ranks must ask for alike. A plain value. Counts are
// elements of one rank, as NCCL counts them: an AllGather among four receives four times what it
// sends.
#pragma once

#include <cstddef>
#include <cstdint>

#include "proto/types.h"

namespace arcomm {

struct OperationSpec {
  std::uint64_t send_count = 0;  // of an AllReduce both are the same
  std::uint64_t recv_count = 0;
  Collective collective = Collective::AllReduce;
  DType dtype = DType::Float32;
  ReduceOp op = ReduceOp::Sum;
  Codec codec = Codec::None;
  Rank root = kNoRank;  // of collectives that have one

  std::size_t element_bytes() const { return size_of(dtype); }
  std::uint64_t send_bytes() const { return send_count * element_bytes(); }
  std::uint64_t recv_bytes() const { return recv_count * element_bytes(); }
  // Nothing is moved: that all ranks come, and ask for this, is all there is to it.
  bool is_empty() const { return send_count == 0 && recv_count == 0; }
  friend bool operator==(const OperationSpec&, const OperationSpec&) = default;
};

constexpr OperationSpec all_reduce_of(std::uint64_t count, DType dtype = DType::Float32,
                                      ReduceOp op = ReduceOp::Sum) {
  return {.send_count = count, .recv_count = count, .dtype = dtype, .op = op};
}

// Null where it makes sense, else why not: a static sentence. Of a value that a stranger wrote:
// every field may hold anything. Afterwards its bytes do not overflow.
const char* find_fault(const OperationSpec& spec);

}  // namespace arcomm
