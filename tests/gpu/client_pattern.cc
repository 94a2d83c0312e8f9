#include "tests/gpu/client_pattern.h"

#include <cstring>
#include <utility>

#include "kernels/host/element.h"
#include "kernels/host/reference.h"
#include "tests/gpu/client_options.h"

namespace arcomm::gpu {
namespace {

float value_of(std::uint64_t seed, std::uint64_t index) {
  std::uint64_t mixed = seed * 0x9e3779b97f4a7c15 + index + 1;
  mixed ^= mixed >> 31;
  mixed *= 0xbf58476d1ce4e5b9;
  mixed ^= mixed >> 29;
  mixed *= 0x94d049bb133111eb;
  return (static_cast<float>(mixed >> 40) - 8388608.0F) / 2097152.0F;  // -4 to 4
}

std::vector<std::byte> inputs_of(int rank, int pattern) {
  const std::size_t element = size_of(options.dtype);
  std::vector<std::byte> values(kPeriod * element);
  const std::uint64_t seed =
      static_cast<std::uint64_t>(rank) * 1000 + static_cast<std::uint64_t>(pattern);
  for (std::uint64_t i = 0; i < kPeriod; ++i) {
    const float value = value_of(seed, i);
    std::byte* const place = values.data() + i * element;
    if (options.dtype == DType::Float32) {
      std::memcpy(place, &value, sizeof(value));
    } else {
      const std::uint16_t half =
          options.dtype == DType::Float16 ? float16_from_float(value) : bfloat16_from_float(value);
      std::memcpy(place, &half, sizeof(half));
    }
  }
  return values;
}

}  // namespace

Pattern make_pattern(int number) {
  std::vector<std::vector<std::byte>> sent, received;
  AllReduceArgs args;
  for (int rank = 0; rank < options.ranks; ++rank) {
    sent.push_back(inputs_of(rank, number));
    received.emplace_back(sent.back().size());
  }
  for (std::size_t rank = 0; rank < sent.size(); ++rank) {
    args.send[rank] = sent[rank].data();
    args.recv[rank] = received[rank].data();
  }
  args.count = kPeriod;
  args.ranks = static_cast<std::uint32_t>(options.ranks);
  args.dtype = options.dtype;
  reference::all_reduce_range(args, 0, kPeriod);
  const auto mine = static_cast<std::size_t>(options.rank);
  return {std::move(sent[mine]), std::move(received[mine])};
}

}  // namespace arcomm::gpu
