// What this process may use of the machine, as a value. Discovered once; immutable; any thread.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace arcomm {

struct NumaNode {
  int id = 0;
  std::vector<int> cores;  // those this process may run on
};

struct Topology {
  std::vector<int> cores;       // by sched_getaffinity, ascending, never empty
  double cpu_quota = 0;         // cores that the control group grants, or 0: no limit
  std::vector<NumaNode> nodes;  // at least one; together they hold `cores`
  std::uint64_t line_bytes = 64;
  std::uint64_t l1d_bytes = 0;  // of one core; 0 where the machine does not tell
  std::uint64_t l2_bytes = 0;   // of one core
  std::uint64_t llc_bytes = 0;  // the last level, shared by its cores
  std::uint64_t memory_bytes = 0;
  std::string cpu_model;

  // Threads that can make progress at the same time: cores bounded by the quota, at least 1.
  std::uint32_t parallelism() const;
};

// Never fails: what cannot be read keeps a conservative value. `root` stands before /sys and /proc,
// for tests.
Topology discover_host(const std::string& root = "");

// "0-3,8" as the kernel prints sets of cores, and as net.cpus has them. A malformed part ends the
// list.
std::vector<int> core_list(std::string_view text);

}  // namespace arcomm
