#include "client/arctl/bench/accuracy/data.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <fstream>
#include <random>
#include <system_error>

#include "client/arctl/bench/element.h"

namespace arcomm::arctl {
namespace {

constexpr std::uint64_t kOutlierChannel = 77;  // the channel, of each kOutlierEvery

// As the type has it. What it cannot hold comes nearest.
float rounded(float value, DType dtype) {
  std::array<std::byte, 4> element{};
  encode(dtype, value, element.data());
  return static_cast<float>(decode(dtype, element.data()));
}

// A value of the block at `i`, of magnitude `most` at the most.
float adversarial(std::uint64_t kind, std::uint64_t i, float most) {
  switch (kind) {
    case 0:  // all alike
      return most;
    case 1:  // one alone
      return i == 17 ? most : 0;
    case 2:  // two by two
      return i % 2 == 0 ? most : -most;
    case 3:  // ever smaller
      return std::ldexp(most, -static_cast<int>(i)) * (i % 3 == 0 ? -1.0F : 1.0F);
    case 4:  // just on the side where there is one code less
      return i == 31 ? most : -most * (1 - static_cast<float>(i) * 0x1p-10F);
    case 5:  // at halves of steps of 1/8, 1/32 or 1/128
      return i == 0 ? -most : most * (static_cast<float>(i) - 16.5F) / (8 << i % 3 * 2);
    case 6:  // one that hides the others
      return i == 5 ? most : most * 0x1p-9F * static_cast<float>(i);
    default:  // nothing, of either sign
      return i % 2 == 0 ? 0.0F : -0.0F;
  }
}

std::vector<float> adversarial_data(std::mt19937_64& random, std::uint64_t count, DType dtype) {
  constexpr std::array<float, 10> kMosts = {1,       3.14159F,  0x1.01p5F,        0x1.03p5F,
                                            0x1p13F, 0x1p-100F, 0x1.fffffep-101F, 0x1p-140F,
                                            0x1p90F, 0x1.7p-30F};
  std::vector<float> values(count);
  for (std::uint64_t first = 0; first < count; first += kCodecBlock) {
    const std::uint64_t kind = random() % 8;
    float most = kMosts[random() % kMosts.size()];
    if (dtype == DType::Float16) most = std::min(most, 0x1p13F);
    if (random() % 2 == 0) most = -most;
    const std::uint64_t last = std::min<std::uint64_t>(first + kCodecBlock, count);
    for (std::uint64_t i = first; i < last; ++i) values[i] = adversarial(kind, i - first, most);
  }
  return values;
}

template <typename Distribution>
std::vector<float> drawn(Distribution distribution, std::mt19937_64& random, std::uint64_t count) {
  std::vector<float> values(count);
  for (float& value : values) value = distribution(random);
  return values;
}

std::vector<float> made(AccuracyData data, std::mt19937_64& random, std::uint64_t count,
                        DType dtype) {
  switch (data) {
    case AccuracyData::HeavyTailed:
      return drawn(std::student_t_distribution<float>(3), random, count);
    case AccuracyData::OutlierChannels: {
      std::vector<float> values = drawn(std::normal_distribution<float>(), random, count);
      for (std::uint64_t i = kOutlierChannel; i < count; i += kOutlierEvery)
        values[i] *= kOutlierTimes;
      return values;
    }
    case AccuracyData::Adversarial:
      return adversarial_data(random, count, dtype);
    case AccuracyData::Gaussian:
    case AccuracyData::Recorded:
      break;
  }
  return drawn(std::normal_distribution<float>(), random, count);
}

}  // namespace

std::string_view text_of(AccuracyData data) {
  switch (data) {
    case AccuracyData::Gaussian:
      return "gaussian";
    case AccuracyData::HeavyTailed:
      return "heavy-tailed";
    case AccuracyData::OutlierChannels:
      return "outlier-channels";
    case AccuracyData::Adversarial:
      return "adversarial";
    case AccuracyData::Recorded:
      return "recorded";
  }
  return "unknown";
}

std::vector<float> make_data(AccuracyData data, Rank rank, std::uint64_t count, DType dtype) {
  std::mt19937_64 random(1 + static_cast<std::uint64_t>(data) * kMaxRanks +
                         static_cast<std::uint64_t>(rank));
  std::vector<float> values = made(data, random, count, dtype);
  for (float& value : values) value = rounded(value, dtype);
  return values;
}

Result<RecordedData> RecordedData::read(const std::string& path, int ranks) {
  const auto bad = [&path](const auto&... why) {
    return error(ErrorCode::InvalidArgument, Reason::BadValue, "--data ", path, ": ", why...);
  };
  std::ifstream file(path, std::ios::binary | std::ios::ate);
  if (!file) return bad("cannot be opened: ", std::strerror(errno));
  const std::streamoff bytes = file.tellg();
  if (bytes < 0) return bad("has no length: it must be a file");
  const auto floats = static_cast<std::uint64_t>(bytes) / sizeof(float);
  if (static_cast<std::uint64_t>(bytes) % sizeof(float) != 0)
    return bad("has ", bytes, " bytes, which is no whole number of float32 values");
  if (floats < kCodecBlock * static_cast<std::uint64_t>(ranks)) {
    return bad("has ", floats, " float32 values: ", ranks, " ranks need ", kCodecBlock,
               " each at least");
  }
  RecordedData data;
  data.part_ = floats / static_cast<std::uint64_t>(ranks);
  data.count_ = std::min(data.part_, kMostRecorded);
  data.values_.resize(floats);
  file.seekg(0);
  file.read(reinterpret_cast<char*>(data.values_.data()), bytes);
  if (!file) return bad("ended while it was read");
  const auto found =
      std::ranges::find_if_not(data.values_, [](float value) { return std::isfinite(value); });
  if (found != data.values_.end())
    return bad("value ", found - data.values_.begin(), " is not finite");
  return data;
}

std::vector<float> RecordedData::of(Rank rank, DType dtype) const {
  const auto first =
      values_.begin() + static_cast<std::ptrdiff_t>(part_ * static_cast<std::uint64_t>(rank));
  std::vector<float> values(first, first + static_cast<std::ptrdiff_t>(count_));
  for (float& value : values) value = rounded(value, dtype);
  return values;
}

}  // namespace arcomm::arctl
