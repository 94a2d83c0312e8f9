#include "client/examples/tensor_parallel_lm/serving/recording.h"

#include <algorithm>
#include <filesystem>
#include <stdexcept>
#include <utility>

namespace lm {
namespace {

[[noreturn]] void cannot_write(const std::string& path) {
  throw std::runtime_error("cannot write the recording to " + path +
                           ": is the folder there, and room in it?");
}

}  // namespace

Recording::Recording(std::string path) : path_(std::move(path)) {
  if (path_.empty()) return;
  file_.open(path_, std::ios::binary | std::ios::trunc);
  if (!file_) cannot_write(path_);
}

void Recording::add(std::span<const float> values) {
  if (path_.empty()) return;
  const std::size_t count = std::min(values.size(), kMostValues - written_);
  file_.write(reinterpret_cast<const char*>(values.data()),
              static_cast<std::streamsize>(count * sizeof(float)));
  written_ += count;
}

void Recording::flush() {
  if (path_.empty()) return;
  file_.flush();
  if (!file_) cannot_write(path_);
}

std::size_t join_recordings(const std::vector<std::string>& parts, const std::string& path) {
  std::vector<float> values;
  std::ofstream whole(path, std::ios::binary | std::ios::trunc);
  for (const std::string& part : parts) {
    // All ranks call alike, so that their files are of one length.
    values.resize(std::filesystem::file_size(part) / sizeof(float));
    std::ifstream file(part, std::ios::binary);
    const auto bytes = static_cast<std::streamsize>(values.size() * sizeof(float));
    file.read(reinterpret_cast<char*>(values.data()), bytes);
    if (!file) throw std::runtime_error("cannot read a rank's recording back from " + part);
    whole.write(reinterpret_cast<const char*>(values.data()), bytes);
    file.close();
    std::filesystem::remove(part);
  }
  whole.close();
  if (!whole) cannot_write(path);
  return values.size();
}

}  // namespace lm
