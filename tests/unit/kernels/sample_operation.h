// An AllReduce over made-up values, kept twice: one copy for the kernel, one for the reference.
// Buffers are allocated to the byte, so that a sanitizer sees the first access beside them;
// elements outside of the range are checked. Not thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <ostream>
#include <random>
#include <string>
#include <vector>

#include "kernels/args.h"
#include "kernels/catalog.h"
#include "proto/types.h"

namespace arcomm {

inline constexpr DType kEveryType[] = {
#define X(name, number, bytes, text) DType::name,
    ARC_DTYPES(X)
#undef X
};
inline constexpr ReduceOp kEveryOp[] = {
#define X(name, number, text) ReduceOp::name,
    ARC_REDUCE_OPS(X)
#undef X
};

struct Shape {
  DType dtype = DType::Float32;
  ReduceOp op = ReduceOp::Sum;
  Codec codec = Codec::None;
  std::uint32_t ranks = 2;    // inputs
  std::uint32_t outputs = 0;  // 0: as many
  std::uint32_t divisor = 0;  // 0: as many
  std::uint64_t count = 0;
  std::uint64_t first = 0, last = 0;  // the range that is reduced
  std::uint64_t send_shift = 0;       // elements by which rank r's pointers miss a cache line,
  std::uint64_t recv_shift = 0;       // times (r + 1) where `shift_per_rank`
  bool shift_per_rank = false;
  bool in_place = false;
  bool non_temporal = false;
  std::uint64_t seed = 0;

  friend std::ostream& operator<<(std::ostream& out, const Shape& shape);
};

// Elements that test arithmetic: small numbers mostly, and every kind of special one.
void fill_sample(std::byte* to, std::uint64_t count, DType dtype, std::mt19937_64& random);

Shape random_shape(DType dtype, ReduceOp op, std::mt19937_64& random);

class SampleOperation {
 public:
  explicit SampleOperation(const Shape& shape);

  // Runs the kernel on one copy and the reference on the other. Empty when every byte agrees and no
  // input changed out of place; else a description of the first difference.
  std::string run_and_compare();

  AllReduceArgs& args() { return kernel_.args; }

 private:
  struct Free {
    void operator()(std::byte* memory) const { std::free(memory); }
  };
  struct Buffer {
    std::unique_ptr<std::byte, Free> allocation;
    std::byte* start = nullptr;
    std::uint64_t bytes = 0;
  };
  struct Copy {
    std::vector<Buffer> send, recv;  // recv empty in place
    AllReduceArgs args;
  };

  Buffer make_buffer(std::uint64_t shift) const;
  Copy make_copy() const;

  Shape shape_;
  Copy kernel_, reference_;
};

Choice inline_choice();
Choice streaming();

}  // namespace arcomm
