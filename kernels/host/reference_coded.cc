#include "kernels/host/reference_coded.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstring>
#include <limits>

#include "kernels/codec/golden.h"
#include "kernels/host/element.h"

namespace arcomm::reference {
namespace {

using Block = std::array<float, kCodecBlock>;

float read(DType dtype, const std::byte* from) {
  if (dtype == DType::Float32) {
    float value = 0;
    std::memcpy(&value, from, sizeof(value));
    return value;
  }
  std::uint16_t half = 0;
  std::memcpy(&half, from, sizeof(half));
  return dtype == DType::Float16 ? float_from_float16(half) : float_from_bfloat16(half);
}

void write(DType dtype, std::byte* to, float value) {
  if (dtype == DType::Float32) {
    if (value != value) value = std::numeric_limits<float>::quiet_NaN();
    std::memcpy(to, &value, sizeof(value));
    return;
  }
  const std::uint16_t half =
      dtype == DType::Float16 ? float16_from_float(value) : bfloat16_from_float(value);
  std::memcpy(to, &half, sizeof(half));
}

Block decoded(const AllReduceArgs& args, std::uint32_t input, std::uint64_t first,
              std::uint64_t count) {
  const std::size_t size = size_of(args.dtype);
  Block values{};
  for (std::uint64_t i = 0; i < count; ++i) {
    values[i] =
        read(args.dtype, static_cast<const std::byte*>(args.inputs[input]) + (first + i) * size);
  }
  std::array<std::byte, kMostBlockBytes> bytes{};
  golden::encode(args.codec, values, bytes.data());
  golden::decode(args.codec, bytes.data(), values);
  return values;
}

void reduce_block(const AllReduceArgs& args, std::uint64_t first, std::uint64_t count) {
  Block sum = decoded(args, 0, first, count);
  for (std::uint32_t input = 1; input < args.num_inputs; ++input) {
    const Block next = decoded(args, input, first, count);
    for (std::uint32_t i = 0; i < kCodecBlock; ++i) sum[i] += next[i];
  }
  if (format_of(args.codec).rotated) {
    golden::transform(sum);
    for (float& value : sum) value *= 1.0F / 32;
  }
  const std::size_t size = size_of(args.dtype);
  for (std::uint64_t i = 0; i < count; ++i) {
    if (args.op == ReduceOp::Avg) sum[i] /= static_cast<float>(args.divisor);
    for (std::uint32_t output = 0; output < args.num_outputs; ++output) {
      write(args.dtype, static_cast<std::byte*>(args.outputs[output]) + (first + i) * size, sum[i]);
    }
  }
}

}  // namespace

void coded_all_reduce_range(const AllReduceArgs& args, std::uint64_t first, std::uint64_t last) {
  for (; first < last; first += kCodecBlock) {
    reduce_block(args, first, std::min<std::uint64_t>(kCodecBlock, last - first));
  }
}

}  // namespace arcomm::reference
