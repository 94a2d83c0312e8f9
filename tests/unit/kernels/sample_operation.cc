#include "tests/unit/kernels/sample_operation.h"

#include <stdlib.h>

#include <algorithm>
#include <bit>
#include <cstdlib>
#include <cstring>
#include <sstream>

#include "kernels/host/element.h"
#include "kernels/host/launch.h"
#include "kernels/host/reference.h"

namespace arcomm {
namespace {

constexpr std::uint64_t kLine = 64;

// A float32 value that tests arithmetic: small numbers mostly, with every kind of special one among
// them.
float sample_float(std::mt19937_64& random) {
  switch (random() % 16) {
    case 0:
      return std::bit_cast<float>(static_cast<std::uint32_t>(random()));  // any bits, NaN too
    case 1:
      return 0.0F;
    case 2:
      return -0.0F;
    case 3:
      return std::bit_cast<float>(0x7f800000U | static_cast<std::uint32_t>(random() << 31));
    case 4:
      return static_cast<float>(static_cast<std::int64_t>(random() % 131072) - 65536);
    default:
      return static_cast<float>(static_cast<std::int64_t>(random() % 20000) - 10000) * 0x1p-10F;
  }
}

template <typename T>
void put(std::byte* to, T value) {
  std::memcpy(to, &value, sizeof(value));
}

}  // namespace

void fill_sample(std::byte* to, std::uint64_t count, DType dtype, std::mt19937_64& random) {
  const std::size_t size = size_of(dtype);
  for (std::uint64_t i = 0; i < count; ++i, to += size) {
    const std::uint64_t bits = random();
    switch (dtype) {
      case DType::Float16:
        put(to, bits % 8 == 0 ? static_cast<std::uint16_t>(bits >> 8)
                              : float16_from_float(sample_float(random)));
        break;
      case DType::BFloat16:
        put(to, bits % 8 == 0 ? static_cast<std::uint16_t>(bits >> 8)
                              : bfloat16_from_float(sample_float(random)));
        break;
      case DType::Float32:
        put(to, sample_float(random));
        break;
      case DType::Float64:
        put(to, bits % 8 == 0 ? std::bit_cast<double>(random())
                              : static_cast<double>(sample_float(random)) * 1.1);
        break;
      case DType::Int8:
      case DType::Uint8:
        put(to, static_cast<std::uint8_t>(bits >> 8));
        break;
      case DType::Int32:
      case DType::Uint32:
        put(to, static_cast<std::uint32_t>(bits >> (bits % 24 + 8)));
        break;
      case DType::Int64:
      case DType::Uint64:
        put(to, bits % 2 == 0 ? random() : random() >> 40);
        break;
    }
  }
}

std::ostream& operator<<(std::ostream& out, const Shape& shape) {
  return out << shape.dtype << ' ' << shape.op << " codec=" << text_of(shape.codec)
             << " ranks=" << shape.ranks << " count=" << shape.count << " range=[" << shape.first
             << ',' << shape.last << ") shifts=" << shape.send_shift << ',' << shape.recv_shift
             << (shape.shift_per_rank ? " per rank" : "") << (shape.in_place ? " in place" : "")
             << (shape.non_temporal ? " streaming" : "") << " seed=" << shape.seed;
}

Shape random_shape(DType dtype, ReduceOp op, std::mt19937_64& random) {
  constexpr std::uint64_t kCounts[] = {0,  1,  2,  3,  7,   15,  16,  17, 31,
                                       33, 63, 64, 65, 127, 129, 255, 257};
  constexpr std::uint32_t kRanks[] = {1, 2, 2, 3, 4, 4, 5, 7, 8, 13, 33, 64};
  Shape shape{.dtype = dtype, .op = op};
  shape.count = random() % 4 == 0 ? random() % 1500 : kCounts[random() % std::size(kCounts)];
  shape.ranks = kRanks[random() % std::size(kRanks)];
  shape.last = shape.count;
  if (random() % 3 == 0) {
    shape.first = random() % (shape.count + 1);
    shape.last = shape.first + random() % (shape.count - shape.first + 1);
  }
  shape.send_shift = random() % 3 == 0 ? random() % 17 : 0;
  shape.recv_shift = random() % 3 == 0 ? random() % 17 : 0;
  shape.shift_per_rank = random() % 2 == 0;
  shape.in_place = random() % 2 == 0;
  shape.non_temporal = random() % 2 == 0;
  shape.seed = random();
  return shape;
}

SampleOperation::Buffer SampleOperation::make_buffer(std::uint64_t shift) const {
  const std::uint64_t size = size_of(shape_.dtype), bytes = shape_.count * size;
  const std::uint64_t offset = shift * size % kLine;
  // The end of the elements is the end of the allocation.
  void* base = nullptr;
  if (::posix_memalign(&base, kLine, std::max<std::uint64_t>(offset + bytes, 1)) != 0) std::abort();
  Buffer buffer;
  buffer.allocation.reset(static_cast<std::byte*>(base));
  buffer.start = buffer.allocation.get() + offset;
  buffer.bytes = bytes;
  return buffer;
}

SampleOperation::Copy SampleOperation::make_copy() const {
  std::mt19937_64 random(shape_.seed);
  Copy copy;
  copy.args = AllReduceArgs::among(shape_.ranks, shape_.count, shape_.dtype, shape_.op);
  copy.args.codec = shape_.codec;
  if (shape_.outputs != 0) copy.args.num_outputs = shape_.outputs;
  if (shape_.divisor != 0) copy.args.divisor = shape_.divisor;
  for (std::uint32_t r = 0; r < std::max(shape_.ranks, copy.args.num_outputs); ++r) {
    const std::uint64_t times = shape_.shift_per_rank ? r + 1 : 1;
    if (r < shape_.ranks) {
      copy.send.push_back(make_buffer(shape_.send_shift * times));
      fill_sample(copy.send[r].start, shape_.count, shape_.dtype, random);
      copy.args.inputs[r] = copy.send[r].start;
    }
    if (r >= copy.args.num_outputs) continue;
    if (shape_.in_place && r < shape_.ranks) {
      copy.args.outputs[r] = copy.send[r].start;
    } else {
      copy.recv.push_back(make_buffer(shape_.recv_shift * times));
      fill_sample(copy.recv.back().start, shape_.count, shape_.dtype, random);
      copy.args.outputs[r] = copy.recv.back().start;
    }
  }
  return copy;
}

SampleOperation::SampleOperation(const Shape& shape)
    : shape_(shape), kernel_(make_copy()), reference_(make_copy()) {}

std::string SampleOperation::run_and_compare() {
  reference::all_reduce_range(reference_.args, shape_.first, shape_.last);
  all_reduce_range(shape_.non_temporal ? streaming() : inline_choice(), kernel_.args, shape_.first,
                   shape_.last);
  const std::uint64_t size = size_of(shape_.dtype);
  const auto compare = [&](const char* which, const std::vector<Buffer>& ours,
                           const std::vector<Buffer>& theirs) -> std::string {
    for (std::size_t r = 0; r < ours.size(); ++r) {
      for (std::uint64_t i = 0; i < shape_.count; ++i) {
        if (std::memcmp(ours[r].start + i * size, theirs[r].start + i * size, size) == 0) continue;
        std::uint64_t got = 0, want = 0;
        std::memcpy(&got, ours[r].start + i * size, size);
        std::memcpy(&want, theirs[r].start + i * size, size);
        std::ostringstream text;
        text << shape_ << ": " << which << " of rank " << r << ", element " << i << ": got 0x"
             << std::hex << got << ", want 0x" << want;
        return text.str();
      }
    }
    return "";
  };
  const std::string inputs = compare("send", kernel_.send, reference_.send);
  return inputs.empty() ? compare("recv", kernel_.recv, reference_.recv) : inputs;
}

Choice inline_choice() {
  return {};
}
Choice streaming() {
  return {.algorithm = Algorithm::TiledStreaming, .tile_bytes = kMinTileBytes, .streams = 1};
}

}  // namespace arcomm
