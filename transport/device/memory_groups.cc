#include "transport/device/memory_groups.h"

#include <algorithm>
#include <charconv>
#include <fstream>
#include <utility>

namespace arcomm {
namespace {

// Where a version of control groups says what memory its groups may have.
struct GroupFiles {
  const char* most;
  const char* used;
};
constexpr GroupFiles kVersion2{"/memory.max", "/memory.current"};
constexpr GroupFiles kVersion1{"/memory.limit_in_bytes", "/memory.usage_in_bytes"};
constexpr std::uint64_t kVersion1Unlimited = std::uint64_t{1} << 62;  // or some pages less

// The number that the file consists of; no limit where it says "max" or is not there.
std::uint64_t number_in(const std::string& path) {
  std::ifstream file(path);
  std::string word;
  std::uint64_t value = 0;
  if (!(file >> word)) return kNoMemoryLimit;
  const auto [end, failed] = std::from_chars(word.data(), word.data() + word.size(), value);
  return failed == std::errc{} && end == word.data() + word.size() ? value : kNoMemoryLimit;
}

void add_groups(const GroupFiles& files, const std::string& root, std::string path,
                std::vector<MemoryGroup>& groups) {
  // As the kernel writes what is outside of what this process sees; a group may be named "..x".
  if (path == "/.." || path.starts_with("/../")) return;
  while (path.ends_with('/')) path.pop_back();
  std::size_t depth = 0;
  for (std::size_t end = 0; depth < kMostGroupDepth; ++depth) {
    MemoryGroup group{.folder = root + path.substr(0, end)};
    group.most_bytes = number_in(group.folder + files.most);
    if (group.most_bytes < kVersion1Unlimited) {
      group.used_bytes = number_in(group.folder + files.used);
      if (group.used_bytes != kNoMemoryLimit) groups.push_back(std::move(group));
    }
    if (end >= path.size()) return;
    end = std::min(path.find('/', end + 1), path.size());
  }
}

}  // namespace

std::vector<MemoryGroup> read_memory_groups(pid_t process) {
  std::vector<MemoryGroup> found;
  std::ifstream groups("/proc/" + (process == 0 ? "self" : std::to_string(process)) + "/cgroup");
  for (std::string line; std::getline(groups, line);) {
    const std::size_t version_1 = line.find(":memory:");
    if (line.starts_with("0::")) {
      add_groups(kVersion2, "/sys/fs/cgroup", line.substr(3), found);
    } else if (version_1 != std::string::npos) {
      add_groups(kVersion1, "/sys/fs/cgroup/memory",
                 line.substr(version_1 + sizeof(":memory:") - 1), found);
    }
  }
  return found;
}

std::vector<MemoryGroup> read_memory_groups_below(const std::string& root, std::string path) {
  std::vector<MemoryGroup> found;
  add_groups(kVersion2, root, std::move(path), found);
  return found;
}

}  // namespace arcomm
