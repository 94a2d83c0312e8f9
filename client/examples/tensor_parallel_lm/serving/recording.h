// What a rank gives to its AllReduces, written to a file as it is: float32 in this machine's byte
// order, one operation behind the other. Thread: one. Ownership: owns the file. Throws
// std::runtime_error where it cannot be written.
#pragma once

#include <cstddef>
#include <fstream>
#include <span>
#include <string>
#include <vector>

namespace lm {

class Recording {
 public:
  static constexpr std::size_t kMostValues = 1 << 20;  // of a rank; what comes later is left out

  explicit Recording(std::string path);  // "": records nothing
  void add(std::span<const float> values);
  void flush();

 private:
  std::string path_;
  std::ofstream file_;
  std::size_t written_ = 0;
};

// The ranks' files as one, rank by rank and alike in length; they are removed. The values of each
// rank.
std::size_t join_recordings(const std::vector<std::string>& parts, const std::string& path);

}  // namespace lm
