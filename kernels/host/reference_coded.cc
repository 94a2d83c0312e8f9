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

std::uint64_t offset_of(const AllReduceArgs& args, std::uint64_t first) {
  return first / kCodecBlock * format_of(args.codec).block_bytes();
}

Block elements(const AllReduceArgs& args, std::uint32_t input, std::uint64_t first,
               std::uint64_t count) {
  const std::size_t size = size_of(args.dtype);
  Block values{};
  for (std::uint64_t i = 0; i < count; ++i) {
    values[i] =
        read(args.dtype, static_cast<const std::byte*>(args.inputs[input]) + (first + i) * size);
  }
  return values;
}

// What an input's block decodes to: one of elements is encoded first.
Block decoded(const AllReduceArgs& args, std::uint32_t input, std::uint64_t first,
              std::uint64_t count) {
  Block values{};
  if (args.stage != ReduceStage::Whole) {
    const auto* blocks = static_cast<const std::byte*>(args.inputs[input]);
    golden::decode(args.codec, blocks + offset_of(args, first), values);
    return values;
  }
  values = elements(args, input, first, count);
  std::array<std::byte, kMostBlockBytes> bytes{};
  golden::encode(args.codec, values, bytes.data());
  golden::decode(args.codec, bytes.data(), values);
  return values;
}

Block sum_of(const AllReduceArgs& args, std::uint64_t first, std::uint64_t count) {
  Block sum = decoded(args, 0, first, count);
  for (std::uint32_t input = 1; input < args.num_inputs; ++input) {
    const Block next = decoded(args, input, first, count);
    for (std::uint32_t i = 0; i < kCodecBlock; ++i) sum[i] += next[i];
  }
  return sum;
}

void divide(const AllReduceArgs& args, Block& sum) {
  if (args.op != ReduceOp::Avg) return;
  for (float& value : sum) value /= static_cast<float>(args.divisor);
}

void turn_back(Codec codec, Block& sum) {
  if (!format_of(codec).rotated) return;
  golden::transform(sum);
  for (float& value : sum) value *= 1.0F / 32;
}

void write_block(const AllReduceArgs& args, std::uint64_t first, std::uint64_t count,
                 const Block& result) {
  const std::size_t size = size_of(args.dtype);
  for (std::uint64_t i = 0; i < count; ++i) {
    for (std::uint32_t output = 0; output < args.num_outputs; ++output) {
      write(args.dtype, static_cast<std::byte*>(args.outputs[output]) + (first + i) * size,
            result[i]);
    }
  }
}

std::byte* blocks_out(const AllReduceArgs& args, std::uint64_t first) {
  return static_cast<std::byte*>(args.outputs[0]) + offset_of(args, first);
}

void encode_sum_of_elements(const AllReduceArgs& args, std::uint64_t first, std::uint64_t count) {
  Block sum = elements(args, 0, first, count);
  for (std::uint32_t input = 1; input < args.num_inputs; ++input) {
    const Block next = elements(args, input, first, count);
    for (std::uint32_t i = 0; i < kCodecBlock; ++i) sum[i] += next[i];
  }
  golden::encode(args.codec, sum, blocks_out(args, first));
}

}  // namespace

void coded_all_reduce_range(const AllReduceArgs& args, std::uint64_t first, std::uint64_t last) {
  for (; first < last; first += kCodecBlock) {
    const std::uint64_t count = std::min<std::uint64_t>(kCodecBlock, last - first);
    if (args.stage == ReduceStage::Partial) {
      encode_sum_of_elements(args, first, count);
      continue;
    }
    Block sum = sum_of(args, first, count);
    if (args.stage == ReduceStage::Recode) {
      divide(args, sum);
      golden::encode(unrotated(args.codec), sum, blocks_out(args, first));
      continue;
    }
    turn_back(args.codec, sum);
    divide(args, sum);
    write_block(args, first, count, sum);
  }
}

void coded_all_reduce_in_two_hops(const AllReduceArgs& args, std::uint64_t first,
                                  std::uint64_t last) {
  for (; first < last; first += kCodecBlock) {
    const std::uint64_t count = std::min<std::uint64_t>(kCodecBlock, last - first);
    Block sum = sum_of(args, first, count);
    divide(args, sum);
    std::array<std::byte, kMostBlockBytes> bytes{};
    golden::encode(unrotated(args.codec), sum, bytes.data());
    golden::decode(unrotated(args.codec), bytes.data(), sum);
    turn_back(args.codec, sum);
    write_block(args, first, count, sum);
  }
}

}  // namespace arcomm::reference
