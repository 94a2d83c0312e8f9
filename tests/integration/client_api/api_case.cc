#include "tests/integration/client_api/api_case.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>

#include "kernels/host/reference.h"

namespace arcomm {
namespace {

using Random = std::mt19937_64;

std::string_view text_of(CallShape shape) {
  switch (shape) {
    case CallShape::Blocking:
      return "blocking";
    case CallShape::Asynchronous:
      return "asynchronous";
    case CallShape::Planned:
      return "planned";
    case CallShape::Grouped:
      return "grouped";
  }
  return "unknown";
}

// Small counts, powers of two and their neighbours, and anything: each finds other mistakes.
std::size_t draw_count(Random& random, std::size_t most) {
  const std::size_t any = random() % (most + 1);
  switch (random() % 8) {
    case 0:
      return random() % 4;
    case 1:
    case 2:
      return std::min(most, random() % 100);
    case 3:
    case 4:
      return std::min(most, (std::size_t{1} << (random() % 20)) + random() % 3 - 1);
    case 5:
    case 6:
      return std::min<std::size_t>(most, random() % 20000);
    default:
      return any;
  }
}

// A float32 with a mixture of magnitudes, or one of the values that are easily got wrong.
float draw_float(Random& random) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  constexpr float kSpecial[] = {
      0.0F,   -0.0F,  kInfinity, -kInfinity, std::numeric_limits<float>::quiet_NaN(),
      1e-42F, -6e-8F, 65504.0F,  3e38F,      1.0F};
  if (random() % 64 == 0) return kSpecial[random() % std::size(kSpecial)];
  const float mantissa =
      static_cast<float>(static_cast<std::int64_t>(random() % 4001) - 2000) / 1000.0F;
  return std::ldexp(mantissa, static_cast<int>(random() % 12) - 6);
}

std::uint16_t bfloat16_bits(float value) {
  return static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(value) >> 16);
}

// Normal float16 numbers around one, with any of the format's bit patterns now and then.
std::uint16_t draw_float16_bits(Random& random) {
  if (random() % 64 == 0) return static_cast<std::uint16_t>(random());
  const auto exponent = static_cast<unsigned>(9 + random() % 12);
  return static_cast<std::uint16_t>((random() & 0x8000U) | exponent << 10 | (random() & 0x3ffU));
}

template <typename T>
void append(Bytes& bytes, const T& value) {
  const auto* raw = reinterpret_cast<const std::byte*>(&value);
  bytes.insert(bytes.end(), raw, raw + sizeof value);
}

Bytes draw_input(Random& random, DType dtype, std::size_t count) {
  Bytes bytes;
  bytes.reserve(count * size_of(dtype));
  for (std::size_t i = 0; i < count; ++i) {
    switch (dtype) {
      case DType::Float16:
        append(bytes, draw_float16_bits(random));
        break;
      case DType::BFloat16:
        append(bytes, bfloat16_bits(draw_float(random)));
        break;
      case DType::Float32:
        append(bytes, draw_float(random));
        break;
      case DType::Float64:
        append(bytes, static_cast<double>(draw_float(random)) * 1.000000001);
        break;
      case DType::Int8:
      case DType::Uint8:
        append(bytes, static_cast<std::uint8_t>(random()));
        break;
      case DType::Int32:
      case DType::Uint32:
        append(bytes, static_cast<std::uint32_t>(random()));
        break;
      case DType::Int64:
      case DType::Uint64:
        append(bytes, static_cast<std::uint64_t>(random()));
        break;
    }
  }
  return bytes;
}

}  // namespace

std::ostream& operator<<(std::ostream& out, const ApiCase& c) {
  out << "case seed " << c.seed << ": " << c.ranks << " ranks, " << c.count << " x " << c.dtype
      << ", " << c.op << ", " << text_of(c.shape);
  for (std::size_t rank = 0; rank < c.placements.size(); ++rank) {
    const Placement& p = c.placements[rank];
    out << "\n  rank " << rank << ": send in " << text_of(p.send_kind) << " at element "
        << p.send_offset;
    if (p.is_in_place) {
      out << ", in place";
    } else {
      out << ", recv in " << text_of(p.recv_kind) << " at element " << p.recv_offset;
    }
  }
  return out;
}

ApiCase draw_case(std::uint64_t seed, int ranks, std::size_t max_bytes) {
  Random random(seed);
  ApiCase api_case;
  api_case.seed = seed;
  api_case.ranks = ranks;
  api_case.dtype = static_cast<DType>(random() % kDTypes);
  api_case.op = static_cast<ReduceOp>(random() % kReduceOps);
  api_case.shape = static_cast<CallShape>(random() % kCallShapes);
  api_case.count = draw_count(random, max_bytes / size_of(api_case.dtype) - 2 * kLargestOffset);
  for (int rank = 0; rank < ranks; ++rank) {
    Placement placement;
    placement.send_kind = static_cast<MemoryKind>(random() % kMemoryKinds);
    placement.recv_kind = static_cast<MemoryKind>(random() % kMemoryKinds);
    placement.is_in_place = random() % 2 == 0;
    placement.send_offset = random() % kLargestOffset;
    placement.recv_offset = random() % kLargestOffset;
    api_case.placements.push_back(placement);
  }
  return api_case;
}

std::vector<Bytes> inputs_of(const ApiCase& api_case) {
  Random random(api_case.seed ^ 0x9e3779b97f4a7c15ULL);
  std::vector<Bytes> inputs;
  inputs.reserve(static_cast<std::size_t>(api_case.ranks));
  for (int rank = 0; rank < api_case.ranks; ++rank) {
    inputs.push_back(draw_input(random, api_case.dtype, api_case.count));
  }
  return inputs;
}

Bytes expected_of(const ApiCase& api_case, const std::vector<Bytes>& inputs) {
  AllReduceArgs args = AllReduceArgs::among(static_cast<std::uint32_t>(api_case.ranks),
                                            api_case.count, api_case.dtype, api_case.op);
  std::vector<Bytes> results(inputs.size(), Bytes(inputs[0].size()));
  for (std::size_t rank = 0; rank < inputs.size(); ++rank) {
    args.inputs[rank] = inputs[rank].data();
    args.outputs[rank] = results[rank].data();
  }
  reference::all_reduce_range(args, 0, api_case.count);
  return results[0];
}

}  // namespace arcomm
