// What `arctl bench --accuracy` reduces: made-up values of several kinds, the same on every run,
// and recorded ones. No state; any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "proto/status.h"
#include "proto/types.h"

namespace arcomm::arctl {

enum class AccuracyData : std::uint8_t {
  Gaussian,
  HeavyTailed,      // Student's t of 3 degrees of freedom
  OutlierChannels,  // Gaussian; one channel in 128 is 50 times as large
  Adversarial,      // blocks in which something is at an edge: all alike, one alone, tiny, huge
  Recorded,         // a file's
};
inline constexpr AccuracyData kMadeUpData[] = {AccuracyData::Gaussian, AccuracyData::HeavyTailed,
                                               AccuracyData::OutlierChannels,
                                               AccuracyData::Adversarial};
std::string_view text_of(AccuracyData data);  // "gaussian", "heavy-tailed", ...

inline constexpr std::uint64_t kOutlierEvery = 128;
inline constexpr float kOutlierTimes = 50;

// Of made-up data; each rank has its own. Values are those that `dtype` has.
std::vector<float> make_data(AccuracyData data, Rank rank, std::uint64_t count, DType dtype);

// A file of float32, cut into one part for each rank, the first one's first. Longer parts are cut
// to kMostRecorded elements. An error says what is wrong with the file: not there, not whole
// numbers, too short, a value that is not finite.
class RecordedData {
 public:
  static constexpr std::uint64_t kMostRecorded = 1 << 22;
  static Result<RecordedData> read(const std::string& path, int ranks);

  std::uint64_t count() const { return count_; }  // of each rank
  std::vector<float> of(Rank rank, DType dtype) const;

 private:
  std::vector<float> values_;
  std::uint64_t part_ = 0, count_ = 0;
};

}  // namespace arcomm::arctl
