// Many durations in little room: 32 buckets to each doubling, so that a percentile is 3 % too large
// at most. It travels as one word between processes, and those of several turns add up. Unit:
// microseconds; what is below 1/16 us counts as that. Thread: one at a time.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <map>
#include <sstream>
#include <string>

namespace arcomm::support {

class LatencyHistogram {
 public:
  void add(double us) {
    ++counts_[bucket_of(us)];
    ++total_;
    max_us_ = std::max(max_us_, us);
  }
  void add(const LatencyHistogram& other) {
    for (const auto& [bucket, count] : other.counts_) counts_[bucket] += count;
    total_ += other.total_;
    max_us_ = std::max(max_us_, other.max_us_);
  }
  std::uint64_t total() const { return total_; }
  double max_us() const { return max_us_; }
  // The upper end of the bucket that holds it; 0 of none.
  double at(double percent) const {
    const double below = static_cast<double>(total_) * percent / 100;
    std::uint64_t seen = 0;
    for (const auto& [bucket, count] : counts_) {
      seen += count;
      if (static_cast<double>(seen) >= below) return std::min(end_of(bucket), max_us_);
    }
    return max_us_;
  }

  // "max;bucket:count,bucket:count,..."
  std::string to_word() const {
    std::ostringstream out;
    out << max_us_ << ';';
    for (const auto& [bucket, count] : counts_) out << bucket << ':' << count << ',';
    return out.str();
  }
  static LatencyHistogram from_word(const std::string& word) {
    LatencyHistogram made;
    std::istringstream in(word);
    char mark = 0;
    int bucket = 0;
    std::uint64_t count = 0;
    in >> made.max_us_ >> mark;
    while (in >> bucket >> mark >> count >> mark) {
      made.counts_[bucket] += count;
      made.total_ += count;
    }
    return made;
  }

 private:
  static constexpr double kPerDoubling = 32, kLeast = 1.0 / 16;

  static int bucket_of(double us) {
    return static_cast<int>(std::floor(std::log2(std::max(us, kLeast) / kLeast) * kPerDoubling));
  }
  static double end_of(int bucket) { return kLeast * std::exp2((bucket + 1) / kPerDoubling); }

  std::map<int, std::uint64_t> counts_;
  std::uint64_t total_ = 0;
  double max_us_ = 0;
};

}  // namespace arcomm::support
