// The nouns two processes agree on: element types, operations, ranks and typed ids. No unit is
// implied: sizes are bytes where a name says bytes and elements where it says count.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <ostream>
#include <string_view>

#include "proto/codec.h"

namespace arcomm {

// X(name, number, bytes, text). Numbers cross the ring and the C ABI: appended to, never
// renumbered.
#define ARC_DTYPES(X)           \
  X(Float16, 0, 2, "float16")   \
  X(BFloat16, 1, 2, "bfloat16") \
  X(Float32, 2, 4, "float32")   \
  X(Float64, 3, 8, "float64")   \
  X(Int8, 4, 1, "int8")         \
  X(Uint8, 5, 1, "uint8")       \
  X(Int32, 6, 4, "int32")       \
  X(Uint32, 7, 4, "uint32")     \
  X(Int64, 8, 8, "int64")       \
  X(Uint64, 9, 8, "uint64")

// X(name, number, text)
#define ARC_REDUCE_OPS(X) \
  X(Sum, 0, "sum")        \
  X(Prod, 1, "prod")      \
  X(Min, 2, "min")        \
  X(Max, 3, "max")        \
  X(Avg, 4, "avg")

enum class DType : std::uint8_t {
#define X(name, number, bytes, text) name = number,
  ARC_DTYPES(X)
#undef X
};
enum class ReduceOp : std::uint8_t {
#define X(name, number, text) name = number,
  ARC_REDUCE_OPS(X)
#undef X
};
// What the ranks do together. Broadcast, ReduceScatter, AllGather, AllToAll, Send and Recv take the
// next numbers. X(name, number, text); the text is also what tuning files say. Where code is made
// for an AllReduce alone a switch or a static_assert says so, so that the compiler names what
// another row needs.
#define ARC_COLLECTIVES(X) X(AllReduce, 0, "all_reduce")
enum class Collective : std::uint8_t {
#define X(name, number, text) name = number,
  ARC_COLLECTIVES(X)
#undef X
};

#define X(...) +1
inline constexpr unsigned kDTypes = ARC_DTYPES(X);
inline constexpr unsigned kReduceOps = ARC_REDUCE_OPS(X);
inline constexpr unsigned kCollectives = ARC_COLLECTIVES(X);
#undef X

// Of sets: a bit for each number.
constexpr std::uint16_t bit_of(DType dtype) {
  return static_cast<std::uint16_t>(1U << static_cast<unsigned>(dtype));
}
constexpr std::uint8_t bit_of(ReduceOp op) {
  return static_cast<std::uint8_t>(1U << static_cast<unsigned>(op));
}
constexpr std::uint8_t bit_of(Codec codec) {
  return static_cast<std::uint8_t>(1U << static_cast<unsigned>(codec));
}
constexpr std::uint8_t bit_of(Collective collective) {
  return static_cast<std::uint8_t>(1U << static_cast<unsigned>(collective));
}
constexpr bool has_bit(unsigned set, unsigned number) {
  return (set >> number & 1U) != 0;
}

constexpr std::size_t size_of(DType dtype) {
  switch (dtype) {
#define X(name, number, bytes, text) \
  case DType::name:                  \
    return bytes;
    ARC_DTYPES(X)
#undef X
  }
  return 0;
}
constexpr std::string_view text_of(DType dtype) {
  switch (dtype) {
#define X(name, number, bytes, text) \
  case DType::name:                  \
    return text;
    ARC_DTYPES(X)
#undef X
  }
  return "unknown dtype";
}
constexpr std::string_view text_of(ReduceOp op) {
  switch (op) {
#define X(name, number, text) \
  case ReduceOp::name:        \
    return text;
    ARC_REDUCE_OPS(X)
#undef X
  }
  return "unknown operation";
}
constexpr std::string_view text_of(Collective collective) {
  switch (collective) {
#define X(name, number, text) \
  case Collective::name:      \
    return text;
    ARC_COLLECTIVES(X)
#undef X
  }
  return "unknown collective";
}
inline std::ostream& operator<<(std::ostream& out, DType dtype) {
  return out << text_of(dtype);
}
inline std::ostream& operator<<(std::ostream& out, ReduceOp op) {
  return out << text_of(op);
}

// Whether a result of that operation can be made of what the codec carries.
constexpr bool codec_serves(Codec codec, ReduceOp op, DType dtype) {
  if (codec == Codec::None) return true;
  return (op == ReduceOp::Sum || op == ReduceOp::Avg) &&
         (dtype == DType::Float16 || dtype == DType::BFloat16 || dtype == DType::Float32);
}
inline constexpr const char* kServedByCodecs =
    "codecs serve sum and avg of float16, bfloat16 and float32";

using Rank = std::int32_t;  // 0 .. ranks-1 inside one communicator
inline constexpr Rank kNoRank = -1;
inline constexpr int kMaxRanks = 64;
inline constexpr std::uint32_t kMaxGpuRanks = 8;  // of a communicator whose ranks have GPUs

// A reference that survives its object: the generation tells a reused index from the one that was
// meant. Generation 0 is never handed out, so that a zeroed id is invalid.
template <typename Tag>
struct Id {
  std::uint32_t index = 0;
  std::uint32_t generation = 0;

  bool valid() const { return generation != 0; }
  std::uint64_t bits() const { return (std::uint64_t{generation} << 32) | index; }
  static Id from_bits(std::uint64_t bits) {
    return {static_cast<std::uint32_t>(bits), static_cast<std::uint32_t>(bits >> 32)};
  }
  friend bool operator==(const Id&, const Id&) = default;
  friend auto operator<=>(const Id&, const Id&) = default;
  friend std::ostream& operator<<(std::ostream& out, const Id& id) {
    return out << id.index << '.' << id.generation;
  }
};

using SessionId = Id<struct SessionTag>;
using MemberId = Id<struct MemberTag>;  // one rank of one communicator, as its session names it
using BufferId = Id<struct BufferTag>;
using PlanId = Id<struct PlanTag>;

}  // namespace arcomm

template <typename Tag>
struct std::hash<arcomm::Id<Tag>> {
  std::size_t operator()(const arcomm::Id<Tag>& id) const noexcept {
    return std::hash<std::uint64_t>{}(id.bits());
  }
};
