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
  CodecOrigin codec_origin = CodecOrigin::Named;
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

// Codec and origin in one byte, as rings and nodes carry them. Of a byte that is neither there is
// no such codec.
inline constexpr std::uint8_t kOfErrorClass = 0x80;
constexpr std::uint8_t codec_byte_of(const OperationSpec& spec) {
  return static_cast<std::uint8_t>(
      static_cast<unsigned>(spec.codec) |
      (spec.codec_origin == CodecOrigin::ErrorClass ? kOfErrorClass : 0U));
}
constexpr Codec codec_in(std::uint8_t byte) {
  return static_cast<Codec>(byte & ~kOfErrorClass);
}
constexpr CodecOrigin codec_origin_in(std::uint8_t byte) {
  return (byte & kOfErrorClass) != 0 ? CodecOrigin::ErrorClass : CodecOrigin::Named;
}

// Null where it makes sense, else why not: a static sentence. Of a value that a stranger wrote:
// every field may hold anything. Afterwards its bytes do not overflow.
const char* find_fault(const OperationSpec& spec);

}  // namespace arcomm
