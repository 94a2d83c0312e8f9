#include "client/arctl/bench/pattern.h"

#include <algorithm>
#include <cmath>

#include "client/arctl/bench/element.h"

namespace arcomm::arctl {
namespace {

// Spreads neighbours over the classes, so that data that landed in a neighbour's place is noticed.
unsigned class_of(std::uint64_t index, unsigned classes) {
  return static_cast<unsigned>(((index * 0x9e3779b97f4a7c15u) >> 33) % classes);
}

template <typename Word, std::size_t N>
void fill_words(std::byte* data, std::uint64_t count, unsigned classes,
                const std::array<std::uint64_t, N>& bits) {
  auto* words = reinterpret_cast<Word*>(data);
  for (std::uint64_t i = 0; i < count; ++i)
    words[i] = static_cast<Word>(bits[class_of(i, classes)]);
}

template <typename Word, std::size_t N>
std::uint64_t wrong_words(const std::byte* data, std::uint64_t count, unsigned classes,
                          const std::array<std::uint64_t, N>& bits) {
  const auto* words = reinterpret_cast<const Word*>(data);
  std::uint64_t wrong = 0;
  for (std::uint64_t i = 0; i < count; ++i)
    wrong += words[i] != static_cast<Word>(bits[class_of(i, classes)]);
  return wrong;
}

bool is_floating(DType dtype) {
  return static_cast<unsigned>(dtype) <= static_cast<unsigned>(DType::Float64);
}

// A few units in the last place of the type.
double tolerance_of(DType dtype) {
  switch (dtype) {
    case DType::Float16:
      return 0x1p-9;
    case DType::BFloat16:
      return 0x1p-6;
    case DType::Float32:
      return 0x1p-21;
    case DType::Float64:
      return 0x1p-50;
    case DType::Int8:
    case DType::Uint8:
    case DType::Int32:
    case DType::Uint32:
    case DType::Int64:
    case DType::Uint64:
      return 0;
  }
  return 0;
}

// Of what the bounds allow; and twice that, for what float32 rounds besides.
constexpr double kScaleRounding = 1 + 0x1p-7;

// Calls `body` with a value of the unsigned type that is as wide as `dtype`.
template <typename Body>
auto with_word(DType dtype, const Body& body) {
  switch (size_of(dtype)) {
    case 1:
      return body(std::uint8_t{});
    case 2:
      return body(std::uint16_t{});
    case 4:
      return body(std::uint32_t{});
    default:
      return body(std::uint64_t{});
  }
}

}  // namespace

// The largest sum, (classes - 1) * ranks, must fit an int8.
Pattern::Pattern(DType dtype, ReduceOp op, int ranks, Codec codec)
    : dtype_(dtype),
      op_(op),
      ranks_(ranks),
      codec_(codec),
      classes_(static_cast<unsigned>(
          std::clamp(127 / std::max(ranks, 1), 2, static_cast<int>(kMaxClasses)))) {}

int Pattern::input(unsigned place, Rank rank) const {
  const auto turn = static_cast<int>((place + static_cast<unsigned>(rank)) % classes_);
  switch (op_) {
    case ReduceOp::Sum:
    case ReduceOp::Avg:
      return turn;
    case ReduceOp::Min:
    case ReduceOp::Max:
      return turn + 1;
    case ReduceOp::Prod:  // one factor other than 1, at most: no type overflows
      return rank == static_cast<Rank>(place) % ranks_ ? 2 + static_cast<int>(place) : 1;
  }
  return 0;
}

double Pattern::reduced(unsigned place) const {
  int result = input(place, 0);
  for (Rank rank = 1; rank < ranks_; ++rank) {
    const int other = input(place, rank);
    switch (op_) {
      case ReduceOp::Sum:
      case ReduceOp::Avg:
        result += other;
        break;
      case ReduceOp::Prod:
        result *= other;
        break;
      case ReduceOp::Min:
        result = std::min(result, other);
        break;
      case ReduceOp::Max:
        result = std::max(result, other);
        break;
    }
  }
  if (op_ != ReduceOp::Avg) return result;
  if (is_floating(dtype_)) return static_cast<double>(result) / ranks_;
  const int quotient = result / ranks_;  // integers divide as the daemon's do: without a fraction
  return quotient;
}

void Pattern::fill(std::byte* data, std::uint64_t count, Rank rank) const {
  std::array<std::uint64_t, kMaxClasses> bits{};
  for (unsigned place = 0; place < classes_; ++place)
    bits[place] = encode_small(dtype_, input(place, rank));
  with_word(dtype_, [&](auto word) { fill_words<decltype(word)>(data, count, classes_, bits); });
}

// Inputs are not negative, and then the largest of a block's transform is its sum: half a step of
// the largest input, or of that sum, is what a rank may be off by.
double Pattern::half_steps(std::uint64_t first, std::uint64_t last) const {
  const CodecFormat format = format_of(codec_);
  double together = 0;
  for (Rank rank = 0; rank < ranks_; ++rank) {
    double most = classes_ - 1;
    if (format.rotated) {
      most = 0;
      for (std::uint64_t i = first; i < last; ++i) most += input(class_of(i, classes_), rank);
    }
    together += most / (2.0 * format.levels);
  }
  return together;
}

std::uint64_t Pattern::wrong_coded(const std::byte* data, std::uint64_t count) const {
  std::array<double, kMaxClasses> expected{};
  for (unsigned place = 0; place < classes_; ++place) expected[place] = reduced(place);
  const double divisor = op_ == ReduceOp::Avg ? ranks_ : 1;
  const bool is_fp8 = format_of(codec_).is_fp8();
  std::uint64_t wrong = 0;
  for (std::uint64_t first = 0; first < count; first += kCodecBlock) {
    const std::uint64_t last = std::min<std::uint64_t>(first + kCodecBlock, count);
    const double steps = is_fp8 ? 0 : half_steps(first, last) / divisor;
    for (std::uint64_t i = first; i < last; ++i) {
      const double want = expected[class_of(i, classes_)];
      const double off = (is_fp8 ? want / 16 : steps) * kScaleRounding;
      const double got = decode(dtype_, data + i * size_of(dtype_));
      wrong += !(std::abs(got - want) <= off + (want + off) * tolerance_of(dtype_));
    }
  }
  return wrong;
}

std::uint64_t Pattern::wrong(const std::byte* data, std::uint64_t count) const {
  if (codec_ != Codec::None) return wrong_coded(data, count);
  if (op_ == ReduceOp::Avg && is_floating(dtype_)) {
    std::array<double, kMaxClasses> expected{};
    for (unsigned place = 0; place < classes_; ++place) expected[place] = reduced(place);
    const double tolerance = tolerance_of(dtype_);
    std::uint64_t wrong = 0;
    for (std::uint64_t i = 0; i < count; ++i) {
      const double want = expected[class_of(i, classes_)];
      const double got = decode(dtype_, data + i * size_of(dtype_));
      wrong += !(std::abs(got - want) <= tolerance * std::abs(want));
    }
    return wrong;
  }
  std::array<std::uint64_t, kMaxClasses> bits{};
  for (unsigned place = 0; place < classes_; ++place) {
    bits[place] = encode_small(dtype_, static_cast<int>(reduced(place)));
  }
  return with_word(
      dtype_, [&](auto word) { return wrong_words<decltype(word)>(data, count, classes_, bits); });
}

std::uint64_t nonzero(const std::byte* data, std::uint64_t count, DType dtype) {
  const std::array<std::uint64_t, 1> zero{};
  return with_word(dtype,
                   [&](auto word) { return wrong_words<decltype(word)>(data, count, 1, zero); });
}

}  // namespace arcomm::arctl
