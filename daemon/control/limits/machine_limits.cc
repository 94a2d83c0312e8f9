#include "daemon/control/limits/machine_limits.h"

#include <sys/resource.h>

#include <algorithm>
#include <fstream>

#include "transport/device/sealed_memory.h"

namespace arcomm {
namespace {

constexpr std::uint64_t kKernelsMappings = 65'530;  // its default of vm.max_map_count

// A session brings half a dozen descriptors, and as many again while it attaches, registers and
// leaves.
constexpr std::uint64_t kDescriptorsPerSession = 16;
constexpr std::uint64_t kFewestSessions = 64;  // fewer descriptors than that refuse by themselves
constexpr std::uint64_t kMemoryPerRank = std::uint64_t{1} << 20;
constexpr std::uint64_t kFewestRanks = 4096;
constexpr std::uint64_t kConnectionsOneIn = 8;  // most are for sessions and memory
constexpr std::uint64_t kFewestConnections = 64;
constexpr std::uint64_t kMemoryPerCall = std::uint64_t{2} << 20;  // of which it takes a hundredth
constexpr std::uint64_t kFewestCalls = 4096, kMostCalls = 65'536;
constexpr std::uint64_t kMemoryPerPlan = std::uint64_t{32} << 10;
constexpr std::uint64_t kFewestPlans = 131'072;

}  // namespace

MachineFacts read_machine() {
  MachineFacts facts;
  rlimit descriptors{};
  if (::getrlimit(RLIMIT_NOFILE, &descriptors) == 0) facts.descriptors = descriptors.rlim_cur;
  std::ifstream mappings("/proc/sys/vm/max_map_count");
  if (!(mappings >> facts.mappings)) facts.mappings = kKernelsMappings;
  facts.memory_bytes = most_memory_bytes();
  return facts;
}

Settings::Quota fill_node_limits(Settings::Quota asked, const MachineFacts& machine) {
  const auto fill = [](std::uint64_t& limit, std::uint64_t from_machine) {
    if (limit == 0) limit = from_machine;
  };
  fill(asked.node_sessions, std::clamp<std::uint64_t>(machine.descriptors / kDescriptorsPerSession,
                                                      kFewestSessions, 65'536));
  fill(asked.node_connections,
       std::max(kFewestConnections, machine.descriptors / kConnectionsOneIn));
  fill(asked.node_calls,
       std::clamp(machine.memory_bytes / kMemoryPerCall, kFewestCalls, kMostCalls));
  fill(asked.node_communicators,
       std::clamp<std::uint64_t>(machine.memory_bytes / kMemoryPerRank, kFewestRanks, 1'000'000));
  // The rest is for libraries, threads, and what else the daemon maps.
  fill(asked.node_mappings, std::max<std::uint64_t>(machine.mappings / 2, 1));
  fill(asked.node_host_bytes, std::max<std::uint64_t>(machine.memory_bytes / 8 * 7, 1));
  fill(asked.node_plans,
       std::clamp<std::uint64_t>(machine.memory_bytes / kMemoryPerPlan, kFewestPlans, 10'000'000));
  return asked;
}

}  // namespace arcomm
