#include "tests/support/pattern.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <sstream>
#include <vector>

namespace arcomm::support {
namespace {

// The pattern repeats after this many elements, so that gigabytes cost one period of arithmetic.
constexpr std::size_t kPeriod = 840;

int value_at(std::size_t index, arcRedOp_t op, int rank, std::uint64_t salt) {
  const std::size_t mixed = index + static_cast<std::size_t>(salt % kPeriod);
  // Products of many ranks must stay below 256 and averages of unsigned types above zero.
  if (op == arcProd)
    return static_cast<int>((mixed + static_cast<std::size_t>(rank)) % 4 == 0 ? 2 : 1);
  return static_cast<int>((mixed * 3 + static_cast<std::size_t>(rank) * 5) % 7) %
             (op == arcSum ? 2 : 7) +
         1;
}

double reduced_at(std::size_t index, arcRedOp_t op, int ranks, std::uint64_t salt) {
  double result = value_at(index, op, 0, salt);
  for (int rank = 1; rank < ranks; ++rank) {
    const double value = value_at(index, op, rank, salt);
    switch (op) {
      case arcSum:
      case arcAvg:
        result += value;
        break;
      case arcProd:
        result *= value;
        break;
      case arcMin:
        result = std::min(result, value);
        break;
      case arcMax:
        result = std::max(result, value);
        break;
    }
  }
  return op == arcAvg ? result / ranks : result;
}

std::uint16_t to_half(
    float value) {  // exact for the small values used here, rounded to nearest otherwise
  const auto bits = std::bit_cast<std::uint32_t>(value);
  if (value == 0) return 0;
  const auto exponent = static_cast<std::int32_t>((bits >> 23) & 255) - 127 + 15;
  std::uint32_t half = (static_cast<std::uint32_t>(exponent) << 10) | ((bits >> 13) & 1023);
  if ((bits & 0x1000) != 0 && (bits & 0x2fff) != 0) ++half;
  return static_cast<std::uint16_t>(half | ((bits >> 16) & 0x8000));
}

double from_half(std::uint16_t bits) {
  const int exponent = (bits >> 10) & 31;
  const double mantissa = bits & 1023;
  const double magnitude =
      exponent == 0 ? std::ldexp(mantissa, -24) : std::ldexp(1024 + mantissa, exponent - 25);
  return (bits & 0x8000) != 0 ? -magnitude : magnitude;
}

std::uint16_t to_bfloat(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  return static_cast<std::uint16_t>((bits + 0x7fff + ((bits >> 16) & 1)) >> 16);
}

double from_bfloat(std::uint16_t bits) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16);
}

template <typename T>
void put(void* data, std::size_t index, T value) {
  std::memcpy(static_cast<char*>(data) + index * sizeof(T), &value, sizeof(T));
}
template <typename T>
T get(const void* data, std::size_t index) {
  T value;
  std::memcpy(&value, static_cast<const char*>(data) + index * sizeof(T), sizeof(T));
  return value;
}

void store(void* data, std::size_t index, arcDataType_t dtype, int value) {
  switch (dtype) {
    case arcFloat16:
      return put(data, index, to_half(static_cast<float>(value)));
    case arcBfloat16:
      return put(data, index, to_bfloat(static_cast<float>(value)));
    case arcFloat32:
      return put(data, index, static_cast<float>(value));
    case arcFloat64:
      return put(data, index, static_cast<double>(value));
    case arcInt8:
      return put(data, index, static_cast<std::int8_t>(value));
    case arcUint8:
      return put(data, index, static_cast<std::uint8_t>(value));
    case arcInt32:
      return put(data, index, static_cast<std::int32_t>(value));
    case arcUint32:
      return put(data, index, static_cast<std::uint32_t>(value));
    case arcInt64:
      return put(data, index, static_cast<std::int64_t>(value));
    case arcUint64:
      return put(data, index, static_cast<std::uint64_t>(value));
  }
}

double load(const void* data, std::size_t index, arcDataType_t dtype) {
  switch (dtype) {
    case arcFloat16:
      return from_half(get<std::uint16_t>(data, index));
    case arcBfloat16:
      return from_bfloat(get<std::uint16_t>(data, index));
    case arcFloat32:
      return get<float>(data, index);
    case arcFloat64:
      return get<double>(data, index);
    case arcInt8:
      return get<std::int8_t>(data, index);
    case arcUint8:
      return get<std::uint8_t>(data, index);
    case arcInt32:
      return get<std::int32_t>(data, index);
    case arcUint32:
      return get<std::uint32_t>(data, index);
    case arcInt64:
      return static_cast<double>(get<std::int64_t>(data, index));
    case arcUint64:
      return static_cast<double>(get<std::uint64_t>(data, index));
  }
  return 0;
}

// An average of a number of ranks that is no power of two is rounded by type; everything else is
// exact.
bool agrees(double got, double want, arcDataType_t dtype, arcRedOp_t op) {
  if (op != arcAvg) return got == want;
  switch (dtype) {
    case arcFloat16:
      return std::abs(got - want) <= want * 0x1p-10;
    case arcBfloat16:
      return std::abs(got - want) <= want * 0x1p-7;
    case arcFloat32:
      return std::abs(got - want) <= want * 0x1p-22;
    case arcFloat64:
      return std::abs(got - want) <= want * 0x1p-51;
    case arcInt8:
    case arcUint8:
    case arcInt32:
    case arcUint32:
    case arcInt64:
    case arcUint64:
      return got == std::trunc(want);
  }
  return false;
}

}  // namespace

std::size_t element_bytes(arcDataType_t dtype) {
  constexpr std::array<std::size_t, 10> kBytes{2, 2, 4, 8, 1, 1, 4, 4, 8, 8};
  return kBytes.at(static_cast<std::size_t>(dtype));
}

bool parse_dtype(const std::string& text, arcDataType_t* dtype) {
  constexpr std::array kNames{"float16", "bfloat16", "float32", "float64", "int8",
                              "uint8",   "int32",    "uint32",  "int64",   "uint64"};
  for (std::size_t i = 0; i < kNames.size(); ++i) {
    if (text == kNames[i]) *dtype = static_cast<arcDataType_t>(i);
    if (text == kNames[i]) return true;
  }
  return false;
}

bool parse_op(const std::string& text, arcRedOp_t* op) {
  constexpr std::array kNames{"sum", "prod", "min", "max", "avg"};
  for (std::size_t i = 0; i < kNames.size(); ++i) {
    if (text == kNames[i]) *op = static_cast<arcRedOp_t>(i);
    if (text == kNames[i]) return true;
  }
  return false;
}

void fill_pattern(void* data, std::size_t count, arcDataType_t dtype, arcRedOp_t op, int rank,
                  std::uint64_t salt) {
  const std::size_t width = element_bytes(dtype);
  for (std::size_t i = 0; i < std::min(count, kPeriod); ++i)
    store(data, i, dtype, value_at(i, op, rank, salt));
  for (std::size_t done = kPeriod; done < count;) {  // doubling copies of whole periods
    const std::size_t more = std::min(done, count - done);
    std::memcpy(static_cast<char*>(data) + done * width, data, more * width);
    done += more;
  }
}

std::string check_pattern(const void* data, std::size_t count, arcDataType_t dtype, arcRedOp_t op,
                          int ranks, std::uint64_t salt) {
  const std::size_t width = element_bytes(dtype);
  const auto* bytes = static_cast<const char*>(data);
  for (std::size_t i = 0; i < count; ++i) {
    if (i >= kPeriod) {
      // Past the first period, whole periods are compared with it.
      const std::size_t length = std::min(kPeriod, count - i);
      if (i % kPeriod == 0 && std::memcmp(bytes + i * width, bytes, length * width) == 0) {
        i += length - 1;
        continue;
      }
    }
    const double want = reduced_at(i % kPeriod, op, ranks, salt);
    const double got = load(data, i, dtype);
    if (!agrees(got, want, dtype, op)) {
      std::ostringstream text;
      text << "element " << i << " of " << count << " is " << got << ", expected " << want;
      return text.str();
    }
  }
  return {};
}

std::uint64_t hash_bytes(const void* data, std::size_t bytes) {
  std::uint64_t hash = 0xcbf29ce484222325u;
  const auto* at = static_cast<const unsigned char*>(data);
  for (std::size_t i = 0; i < bytes; ++i) hash = (hash ^ at[i]) * 0x100000001b3u;
  return hash;
}

}  // namespace arcomm::support
