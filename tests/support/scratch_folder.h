// A fresh folder for one test, removed with all that is in it. Short path: unix sockets allow 107
// characters.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace arcomm::support {

class ScratchFolder {
 public:
  ScratchFolder();  // under $TMPDIR or /tmp; mode 0755, so that tests of foreign users can look
                    // inside
  ~ScratchFolder();
  ScratchFolder(const ScratchFolder&) = delete;
  ScratchFolder& operator=(const ScratchFolder&) = delete;

  const std::string& path() const { return path_; }
  std::string operator/(std::string_view name) const { return path_ + "/" + std::string(name); }

 private:
  std::string path_;
};

// Whole-file text, "" when it cannot be read. Writing aborts the test process on failure.
std::string read_text(const std::string& path);
void write_text(const std::string& path, std::string_view text);
// How often `part` occurs, without overlaps.
std::size_t count_of(std::string_view text, std::string_view part);

}  // namespace arcomm::support
