#include "tests/support/processes/control_group.h"

#include <sys/stat.h>
#include <unistd.h>

#include <fstream>

namespace arcomm::support {
namespace {

bool write_number(const std::string& path, std::uint64_t value) {
  std::ofstream file(path);
  file << value << std::endl;
  return file.good();
}

}  // namespace

ControlGroup::Files ControlGroup::find() {
  Files files;
  std::ifstream groups("/proc/self/cgroup");
  for (std::string line; std::getline(groups, line);) {
    const std::size_t version_1 = line.find(":memory:");
    if (version_1 != std::string::npos) {
      files = {.home = "/sys/fs/cgroup/memory" + line.substr(version_1 + sizeof(":memory:") - 1),
               .limit = "/memory.limit_in_bytes",
               .used = "/memory.usage_in_bytes",
               .events = "/memory.oom_control"};
    } else if (line.starts_with("0::") && files.home.empty()) {
      files = {.home = "/sys/fs/cgroup" + line.substr(3),
               .limit = "/memory.max",
               .used = "/memory.current",
               .events = "/memory.events"};
    }
  }
  while (files.home.ends_with('/')) files.home.pop_back();
  return files;
}

ControlGroup::ControlGroup(const std::string& name, std::uint64_t limit_bytes) : files_(find()) {
  make(files_.home + "/arcomm-" + name + "-" + std::to_string(::getpid()), limit_bytes);
}

ControlGroup::ControlGroup(const ControlGroup& parent, const std::string& name,
                           std::uint64_t limit_bytes)
    : files_(parent.files_) {
  make(parent.folder_ + "/" + name, limit_bytes);
}

ControlGroup::~ControlGroup() {
  leave();
  ::rmdir(folder_.c_str());
}

void ControlGroup::make(const std::string& folder, std::uint64_t limit_bytes) {
  folder_ = folder;
  made_ = ::mkdir(folder.c_str(), 0755) == 0 &&
          (limit_bytes == kNoLimit || write_number(folder + files_.limit, limit_bytes));
}

bool ControlGroup::enter() {
  inside_ =
      made_ && write_number(folder_ + "/cgroup.procs", static_cast<std::uint64_t>(::getpid()));
  return inside_;
}

void ControlGroup::leave() {
  if (inside_) write_number(files_.home + "/cgroup.procs", static_cast<std::uint64_t>(::getpid()));
  inside_ = false;
}

std::uint64_t ControlGroup::used_bytes() const {
  std::ifstream file(folder_ + files_.used);
  std::uint64_t bytes = 0;
  file >> bytes;
  return bytes;
}

long ControlGroup::kills() const {
  std::ifstream file(folder_ + files_.events);
  for (std::string word; file >> word;) {
    long count = 0;
    if (word == "oom_kill" && file >> count) return count;
  }
  return -1;
}

}  // namespace arcomm::support
