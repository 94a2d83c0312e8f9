// A memory control group (version 1 or 2) of a test's own, below the one that the test is in.
// Whatever is started while the test is inside stays there. Thread: one at a time.
#pragma once

#include <cstdint>
#include <string>

namespace arcomm::support {

class ControlGroup {
 public:
  static constexpr std::uint64_t kNoLimit = 0;

  // made() is false where this process may make none, or the memory controller is not lent to it.
  ControlGroup(const std::string& name, std::uint64_t limit_bytes);
  // One more inside of `parent`.
  ControlGroup(const ControlGroup& parent, const std::string& name, std::uint64_t limit_bytes);
  ~ControlGroup();  // leaves it, and removes it: its processes must have ended
  ControlGroup(const ControlGroup&) = delete;
  ControlGroup& operator=(const ControlGroup&) = delete;

  bool made() const { return made_; }
  bool enter();
  void leave();  // back to where the test was before
  const std::string& folder() const { return folder_; }
  std::uint64_t used_bytes() const;
  // Processes that the kernel killed in it for lack of memory.
  long kills() const;

 private:
  struct Files {
    std::string home;  // of the test's own group
    const char* limit = "";
    const char* used = "";
    const char* events = "";
  };
  static Files find();
  void make(const std::string& folder, std::uint64_t limit_bytes);

  Files files_;
  std::string folder_;
  bool made_ = false, inside_ = false;
};

}  // namespace arcomm::support
