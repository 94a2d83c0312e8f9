#include "client/arctl/bench/element.h"

#include <bit>
#include <cmath>
#include <cstring>

namespace arcomm::arctl {
namespace {

template <typename T>
std::uint64_t bits_of(T number) {
  std::uint64_t bits = 0;
  std::memcpy(&bits, &number, sizeof(T));
  return bits;
}

template <typename T>
double read(const std::byte* element) {
  T number;
  std::memcpy(&number, element, sizeof(T));
  return static_cast<double>(number);
}

std::uint64_t encode_half(int number) {
  if (number == 0) return 0;
  const int exponent = static_cast<int>(std::bit_width(static_cast<unsigned>(number))) - 1;
  const int fraction = (number << (10 - exponent)) & 0x3ff;
  return static_cast<std::uint64_t>(((exponent + 15) << 10) | fraction);
}

double decode_half(std::uint16_t bits) {
  const int exponent = (bits >> 10) & 0x1f, fraction = bits & 0x3ff;
  double number = exponent == 0    ? std::ldexp(fraction, -24)
                  : exponent == 31 ? (fraction != 0 ? NAN : INFINITY)
                                   : std::ldexp(fraction + 1024, exponent - 25);
  return (bits & 0x8000) != 0 ? -number : number;
}

std::uint16_t half_of(float number) {
  const std::uint16_t sign = std::signbit(number) ? 0x8000 : 0;
  const auto magnitude = static_cast<double>(std::fabs(number));
  if (!(magnitude < 65520)) return sign | (std::isnan(number) ? 0x7e00 : 0x7c00);
  // Below 2^-14 steps are as those from there on. What is rounded up carries into the exponent.
  const int exponent = magnitude < 0x1p-14 ? -14 : std::ilogb(magnitude);
  const auto steps = static_cast<int>(std::nearbyint(std::ldexp(magnitude, 10 - exponent)));
  return static_cast<std::uint16_t>(sign | ((exponent + 14) * 1024 + steps));
}

std::uint16_t bfloat16_of(float number) {
  const auto bits = std::bit_cast<std::uint32_t>(number);
  if (std::isnan(number)) return 0x7fc0;
  return static_cast<std::uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

}  // namespace

void encode(DType dtype, float number, std::byte* element) {
  if (dtype == DType::Float32) {
    std::memcpy(element, &number, sizeof(number));
    return;
  }
  const std::uint16_t bits = dtype == DType::Float16 ? half_of(number) : bfloat16_of(number);
  std::memcpy(element, &bits, sizeof(bits));
}

std::uint64_t encode_small(DType dtype, int number) {
  switch (dtype) {
    case DType::Float16:
      return encode_half(number);
    case DType::BFloat16:
      return bits_of(static_cast<float>(number)) >> 16;
    case DType::Float32:
      return bits_of(static_cast<float>(number));
    case DType::Float64:
      return bits_of(static_cast<double>(number));
    case DType::Int8:
    case DType::Uint8:
      return static_cast<std::uint8_t>(number);
    case DType::Int32:
    case DType::Uint32:
      return static_cast<std::uint32_t>(number);
    case DType::Int64:
    case DType::Uint64:
      return static_cast<std::uint64_t>(number);
  }
  return 0;
}

double decode(DType dtype, const std::byte* element) {
  switch (dtype) {
    case DType::Float16: {
      std::uint16_t bits;
      std::memcpy(&bits, element, sizeof(bits));
      return decode_half(bits);
    }
    case DType::BFloat16: {
      std::uint16_t bits;
      std::memcpy(&bits, element, sizeof(bits));
      return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16);
    }
    case DType::Float32:
      return read<float>(element);
    case DType::Float64:
      return read<double>(element);
    case DType::Int8:
      return read<std::int8_t>(element);
    case DType::Uint8:
      return read<std::uint8_t>(element);
    case DType::Int32:
      return read<std::int32_t>(element);
    case DType::Uint32:
      return read<std::uint32_t>(element);
    case DType::Int64:
      return read<std::int64_t>(element);
    case DType::Uint64:
      return read<std::uint64_t>(element);
  }
  return NAN;
}

}  // namespace arcomm::arctl
