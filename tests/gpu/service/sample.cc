#include "tests/gpu/service/sample.h"

#include <cstring>

#include "kernels/host/element.h"
#include "kernels/host/reference.h"

namespace arcomm::gpu {
namespace {

constexpr std::uint64_t kSeedsPerRank = 1000;

std::uint64_t mixed(std::uint64_t seed, std::uint64_t index) {
  std::uint64_t bits = seed * 0x9e3779b97f4a7c15 + index + 1;
  bits ^= bits >> 31;
  bits *= 0xbf58476d1ce4e5b9;
  bits ^= bits >> 29;
  return bits * 0x94d049bb133111eb;
}

float float_from(std::uint64_t bits) {
  return (static_cast<float>(bits >> 40) - 8388608.0F) / 2097152.0F;
}

void put(std::byte* place, DType dtype, std::uint64_t bits) {
  const auto as = [place](auto value) { std::memcpy(place, &value, sizeof(value)); };
  switch (dtype) {
    case DType::Float16:
      return as(float16_from_float(float_from(bits)));
    case DType::BFloat16:
      return as(bfloat16_from_float(float_from(bits)));
    case DType::Float32:
      return as(float_from(bits));
    case DType::Float64:
      return as(static_cast<double>(float_from(bits)));
    default:  // integers: their upper bits are as good as any
      std::memcpy(place, reinterpret_cast<const std::byte*>(&bits) + 8 - size_of(dtype),
                  size_of(dtype));
  }
}

}  // namespace

Bytes sent_by(int rank, const Shape& shape, std::uint64_t seed) {
  const std::size_t element = size_of(shape.dtype);
  const std::uint64_t own = static_cast<std::uint64_t>(rank) * kSeedsPerRank + seed;
  Bytes values(shape.bytes());
  for (std::uint64_t i = 0; i < shape.count; ++i)
    put(values.data() + i * element, shape.dtype, mixed(own, i));
  return values;
}

Bytes reduced(const Shape& shape, const std::vector<Bytes>& sent) {
  std::vector<Bytes> received(sent.size(), Bytes(shape.bytes()));
  AllReduceArgs args = AllReduceArgs::among(static_cast<std::uint32_t>(sent.size()), shape.count,
                                            shape.dtype, shape.op);
  args.codec = shape.codec;
  for (std::size_t rank = 0; rank < sent.size(); ++rank) {
    args.inputs[rank] = sent[rank].data();
    args.outputs[rank] = received[rank].data();
  }
  reference::all_reduce_range(args, 0, shape.count);
  return std::move(received.front());
}

}  // namespace arcomm::gpu
