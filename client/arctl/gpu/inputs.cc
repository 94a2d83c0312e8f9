#include "client/arctl/gpu/inputs.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>

#include "client/arctl/bench/element.h"
#include "proto/coding.h"

namespace arcomm::arctl {
namespace {

// Up to which every integer, and so every part of a sum, is exact.
unsigned largest_exact(DType dtype) {
  switch (dtype) {
    case DType::Int8:
    case DType::Uint8:
      return 127;
    case DType::BFloat16:
      return 256;
    case DType::Float16:
      return 2047;
    case DType::Float32:
    case DType::Float64:
    case DType::Int32:
    case DType::Uint32:
    case DType::Int64:
    case DType::Uint64:
      return 65'535;
  }
  return 127;
}

unsigned random_of(std::uint64_t seed, int rank, std::uint64_t index) {
  std::uint64_t bits = (seed * 1000 + static_cast<unsigned>(rank)) * 0x9e3779b97f4a7c15 + index + 1;
  bits ^= bits >> 31;
  bits *= 0xbf58476d1ce4e5b9;
  bits ^= bits >> 29;
  bits *= 0x94d049bb133111eb;
  return static_cast<unsigned>(bits >> 33);
}

int input_of(ReduceOp op, unsigned most, int ranks, unsigned random) {
  const auto n = static_cast<unsigned>(ranks);
  switch (op) {
    case ReduceOp::Sum:
      return static_cast<int>(random % (most / n + 1));
    case ReduceOp::Avg:  // multiples of n: each is exact also when it is divided on its own
      return static_cast<int>(random % (most / (n * n) + 1) * n);
    case ReduceOp::Prod:
      return static_cast<int>(1 + random % 2);
    case ReduceOp::Min:
    case ReduceOp::Max:
      return static_cast<int>(random % (most + 1));
  }
  return 0;
}

int combined(ReduceOp op, int so_far, int next) {
  switch (op) {
    case ReduceOp::Sum:
    case ReduceOp::Avg:
      return so_far + next;
    case ReduceOp::Prod:
      return so_far * next;
    case ReduceOp::Min:
      return std::min(so_far, next);
    case ReduceOp::Max:
      return std::max(so_far, next);
  }
  return so_far;
}

}  // namespace

GpuInputs::GpuInputs(DType dtype, ReduceOp op, int ranks, Rank rank, std::uint64_t seed)
    : dtype_(dtype),
      element_(size_of(dtype)),
      ranks_(ranks),
      mine_(kPeriod * element_),
      expected_(kPeriod * element_) {
  const unsigned most = largest_exact(dtype);
  for (std::uint64_t i = 0; i < kPeriod; ++i) {
    int result = 0;
    for (int each = 0; each < ranks; ++each) {
      const int input = input_of(op, most, ranks, random_of(seed, each, i));
      result = each == 0 ? input : combined(op, result, input);
      if (each != rank) continue;
      const std::uint64_t bits = encode_small(dtype, input);
      std::memcpy(mine_.data() + i * element_, &bits, element_);
    }
    if (op == ReduceOp::Avg) result /= ranks;
    largest_ = most;  // of sums; averages are smaller
    const std::uint64_t bits = encode_small(dtype, result);
    std::memcpy(expected_.data() + i * element_, &bits, element_);
  }
}

// And what rounding to the type adds.
double GpuInputs::allowed(Codec codec) const {
  const double of_type = dtype_ == DType::BFloat16 ? 0x1p-8 : 0x1p-11;
  const double error = relative_error_of(codec, ranks_ == 2 ? 1 : 2);
  return largest_ * (error + (1 + error) * of_type);
}

GpuInputs GpuInputs::zeros(DType dtype) {
  GpuInputs all(dtype);
  all.mine_.resize(kPeriod * all.element_);
  all.expected_.resize(kPeriod * all.element_);
  return all;
}

std::uint64_t GpuInputs::wrong(const std::byte* got, std::uint64_t shift, std::uint64_t first,
                               std::uint64_t count, std::string* what, Codec codec) const {
  const double allowed_off = codec == Codec::None ? 0 : allowed(codec);
  const auto is_wrong = [&](const std::byte* is, const std::byte* must_be) {
    if (codec == Codec::None) return std::memcmp(is, must_be, element_) != 0;
    return !(std::fabs(decode(dtype_, is) - decode(dtype_, must_be)) <= allowed_off);
  };
  std::uint64_t wrong = 0;
  for (std::uint64_t done = 0, length = 0; done < count; done += length) {
    const std::uint64_t place = (first + shift + done) % kPeriod;
    length = std::min(count - done, kPeriod - place);
    const std::byte* const is = got + done * element_;
    const std::byte* const must_be = expected_.data() + place * element_;
    if (std::memcmp(is, must_be, length * element_) == 0) continue;
    for (std::uint64_t i = 0; i < length; ++i) {
      if (!is_wrong(is + i * element_, must_be + i * element_)) continue;
      if (++wrong != 1 || what == nullptr) continue;
      unsigned long long one = 0, other = 0;
      const unsigned long long number = first + done + i;
      std::memcpy(&one, is + i * element_, element_);
      std::memcpy(&other, must_be + i * element_, element_);
      char text[112];
      std::snprintf(text, sizeof(text), "element %llu is %#llx and must be %#llx", number, one,
                    other);
      *what = text;
    }
  }
  return wrong;
}

}  // namespace arcomm::arctl
