// The control groups (version 1 or 2) that a process is in, and what memory they allow. Any thread,
// but not one that others wait for: it reads files.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

namespace arcomm {

inline constexpr std::uint64_t kNoMemoryLimit = std::numeric_limits<std::uint64_t>::max();

struct MemoryGroup {
  std::string folder;  // of its files
  std::uint64_t most_bytes = kNoMemoryLimit;
  std::uint64_t used_bytes = 0;
};

// How deep it is looked for limits. Whoever is given a group to divide may nest groups without end;
// what binds it lies above.
inline constexpr std::size_t kMostGroupDepth = 64;

// Those of `process` (0: this one) that have a limit, the outermost first: a limit binds wherever
// in the path it stands. None where this process sees neither the other nor its groups, as in a
// container with namespaces of its own.
std::vector<MemoryGroup> read_memory_groups(pid_t process = 0);

// Those of the group `path` of version 2 below the folder `root`. Separate so that it can be tested
// on a folder of files.
std::vector<MemoryGroup> read_memory_groups_below(const std::string& root, std::string path);

}  // namespace arcomm
