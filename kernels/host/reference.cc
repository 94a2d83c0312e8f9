#include "kernels/host/reference.h"

#include <cmath>
#include <concepts>
#include <cstring>
#include <limits>
#include <type_traits>

#include "kernels/host/element.h"
#include "kernels/host/reference_coded.h"

namespace arcomm::reference {
namespace {

// How an element lies in memory and in which type it is combined.
template <typename T>
struct Plain {
  using Stored = T;
  using Combined = T;
  static T widen(T value) { return value; }
  static T narrow(T value) {
    if constexpr (std::floating_point<T>) {
      return std::isnan(value) ? std::numeric_limits<T>::quiet_NaN() : value;
    } else {
      return value;
    }
  }
};
struct Half {
  using Stored = std::uint16_t;
  using Combined = float;
  static float widen(Stored value) { return float_from_float16(value); }
  static Stored narrow(float value) { return float16_from_float(value); }
};
struct BHalf {
  using Stored = std::uint16_t;
  using Combined = float;
  static float widen(Stored value) { return float_from_bfloat16(value); }
  static Stored narrow(float value) { return bfloat16_from_float(value); }
};

template <typename C>
C add(C a, C b) {
  if constexpr (std::integral<C>) {  // wraps; in unsigned 64 bits, so that promotion to int cannot
                                     // overflow
    return static_cast<C>(static_cast<std::uint64_t>(a) + static_cast<std::uint64_t>(b));
  } else {
    return a + b;
  }
}
template <typename C>
C multiply(C a, C b) {
  if constexpr (std::integral<C>) {
    return static_cast<C>(static_cast<std::uint64_t>(a) * static_cast<std::uint64_t>(b));
  } else {
    return a * b;
  }
}
template <typename C>
bool is_nan(C value) {
  if constexpr (std::floating_point<C>) return std::isnan(value);
  return false;
}

template <typename C>
C combine(ReduceOp op, C so_far, C next) {
  switch (op) {
    case ReduceOp::Sum:
    case ReduceOp::Avg:
      return add(so_far, next);
    case ReduceOp::Prod:
      return multiply(so_far, next);
    case ReduceOp::Min:
      return is_nan(next) || next < so_far ? next : so_far;
    case ReduceOp::Max:
      return is_nan(next) || next > so_far ? next : so_far;
  }
  return so_far;
}

// In, Out: formats of one Combined.
template <typename In, typename Out>
void reduce(const AllReduceArgs& args, std::uint64_t first, std::uint64_t last) {
  using From = typename In::Stored;
  using To = typename Out::Stored;
  for (std::uint64_t i = first; i < last; ++i) {
    const auto element = [&](std::uint32_t input) {
      From value;
      std::memcpy(&value, static_cast<const std::byte*>(args.inputs[input]) + i * sizeof(From),
                  sizeof(From));
      return In::widen(value);
    };
    typename In::Combined result = element(0);
    for (std::uint32_t input = 1; input < args.num_inputs; ++input) {
      result = combine(args.op, result, element(input));
    }
    if (args.op == ReduceOp::Avg && args.stage != ReduceStage::Partial) {
      // A small type is divided as an int: the divisor may leave its range.
      result = static_cast<typename In::Combined>(result /
                                                  static_cast<decltype(result + 0)>(args.divisor));
    }
    const To narrow = Out::narrow(result);
    for (std::uint32_t output = 0; output < args.num_outputs; ++output) {
      std::memcpy(static_cast<std::byte*>(args.outputs[output]) + i * sizeof(To), &narrow,
                  sizeof(To));
    }
  }
}

template <typename Format>
void reduce(const AllReduceArgs& args, std::uint64_t first, std::uint64_t last) {
  using Accumulator = Plain<typename Format::Combined>;
  switch (args.stage) {
    case ReduceStage::Whole:
      return reduce<Format, Format>(args, first, last);
    case ReduceStage::Partial:
      return reduce<Format, Accumulator>(args, first, last);
    case ReduceStage::Final:
      return reduce<Accumulator, Format>(args, first, last);
    case ReduceStage::Recode:
      return;  // a codec's
  }
}

}  // namespace

void all_reduce_range(const AllReduceArgs& args, std::uint64_t first, std::uint64_t last) {
  if (args.codec != Codec::None) return coded_all_reduce_range(args, first, last);
  switch (args.dtype) {
    case DType::Float16:
      return reduce<Half>(args, first, last);
    case DType::BFloat16:
      return reduce<BHalf>(args, first, last);
    case DType::Float32:
      return reduce<Plain<float>>(args, first, last);
    case DType::Float64:
      return reduce<Plain<double>>(args, first, last);
    case DType::Int8:
      return reduce<Plain<std::int8_t>>(args, first, last);
    case DType::Uint8:
      return reduce<Plain<std::uint8_t>>(args, first, last);
    case DType::Int32:
      return reduce<Plain<std::int32_t>>(args, first, last);
    case DType::Uint32:
      return reduce<Plain<std::uint32_t>>(args, first, last);
    case DType::Int64:
      return reduce<Plain<std::int64_t>>(args, first, last);
    case DType::Uint64:
      return reduce<Plain<std::uint64_t>>(args, first, last);
  }
}

}  // namespace arcomm::reference
