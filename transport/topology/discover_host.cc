#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <optional>
#include <sstream>
#include <string_view>

#include "transport/topology/topology.h"

namespace arcomm {
namespace {

namespace fs = std::filesystem;

std::optional<std::string> first_line(const fs::path& path) {
  std::ifstream file(path);
  std::string line;
  if (!std::getline(file, line)) return std::nullopt;
  return line;
}

std::optional<std::uint64_t> number(std::string_view text) {
  std::uint64_t value = 0;
  const auto parsed = std::from_chars(text.data(), text.data() + text.size(), value);
  if (parsed.ec != std::errc()) return std::nullopt;
  return value;
}

std::vector<int> allowed_cores() {
  cpu_set_t set;
  CPU_ZERO(&set);
  std::vector<int> cores;
  if (::sched_getaffinity(0, sizeof(set), &set) == 0) {
    for (int core = 0; core < CPU_SETSIZE; ++core) {
      if (CPU_ISSET(static_cast<unsigned>(core), &set)) cores.push_back(core);
    }
  }
  if (cores.empty()) {  // more cores than the set can name
    const long online = std::clamp(::sysconf(_SC_NPROCESSORS_ONLN), 1L, long{CPU_SETSIZE});
    for (int core = 0; core < online; ++core) cores.push_back(core);
  }
  return cores;
}

// Of one control group folder: version 2's cpu.max, or version 1's pair of files.
std::optional<double> quota_in(const fs::path& folder) {
  if (const auto line = first_line(folder / "cpu.max")) {
    const std::size_t space = line->find(' ');
    if (space == std::string::npos) return std::nullopt;
    const auto quota = number(std::string_view(*line).substr(0, space));  // "max": no limit
    const auto period = number(std::string_view(*line).substr(space + 1));
    if (quota && period && *period != 0) {
      return static_cast<double>(*quota) / static_cast<double>(*period);
    }
    return std::nullopt;
  }
  const auto quota = first_line(folder / "cpu.cfs_quota_us");  // "-1": no limit
  const auto period = first_line(folder / "cpu.cfs_period_us");
  if (!quota || !period) return std::nullopt;
  const auto quota_us = number(*quota), period_us = number(*period);
  if (!quota_us || !period_us || *period_us == 0) return std::nullopt;
  return static_cast<double>(*quota_us) / static_cast<double>(*period_us);
}

// The tightest quota from this process's control group up to the root, 0 where there is none.
double cpu_quota(const std::string& root) {
  std::ifstream groups(root + "/proc/self/cgroup");
  double tightest = 0;
  for (std::string line; std::getline(groups, line);) {  // "0::/a/b" or "4:cpu,cpuacct:/a/b"
    const std::size_t first = line.find(':');
    const std::size_t second = first == std::string::npos ? first : line.find(':', first + 1);
    if (second == std::string::npos || second + 1 >= line.size()) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    const bool unified = controllers.empty();
    if (!unified && ("," + controllers + ",").find(",cpu,") == std::string::npos) continue;
    const fs::path mount = root + (unified ? "/sys/fs/cgroup" : "/sys/fs/cgroup/cpu");
    fs::path group = fs::path(line.substr(second + 1)).relative_path();
    for (;;) {
      if (const auto quota = quota_in(mount / group)) {
        tightest = tightest == 0 ? *quota : std::min(tightest, *quota);
      }
      if (group.empty() || group == group.parent_path()) break;
      group = group.parent_path();
    }
  }
  return tightest;
}

// "2048K"
std::uint64_t cache_bytes(std::string_view text) {
  const std::uint64_t value = number(text).value_or(0);
  if (text.ends_with('K')) return value * 1024;
  if (text.ends_with('M')) return value * 1024 * 1024;
  return value;
}

void discover_caches(const std::string& root, Topology& topology) {
  const fs::path folder =
      root + "/sys/devices/system/cpu/cpu" + std::to_string(topology.cores.front()) + "/cache";
  std::uint64_t deepest = 0;
  for (int index = 0; index < 8; ++index) {
    const fs::path cache = folder / ("index" + std::to_string(index));
    const auto level = first_line(cache / "level"), type = first_line(cache / "type");
    const auto size = first_line(cache / "size");
    if (!level || !type || !size || *type == "Instruction") continue;
    const std::uint64_t depth = number(*level).value_or(0), bytes = cache_bytes(*size);
    if (depth == 1) topology.l1d_bytes = bytes;
    if (depth == 2) topology.l2_bytes = bytes;
    if (depth >= deepest) {
      deepest = depth;
      topology.llc_bytes = bytes;
    }
    if (const auto line = first_line(cache / "coherency_line_size")) {
      topology.line_bytes = std::max<std::uint64_t>(number(*line).value_or(64), 16);
    }
  }
}

void discover_nodes(const std::string& root, Topology& topology) {
  const fs::path folder = root + "/sys/devices/system/node";
  const auto online = first_line(folder / "online");
  for (const int id : core_list(online.value_or(""))) {
    const auto listed = first_line(folder / ("node" + std::to_string(id)) / "cpulist");
    NumaNode node{.id = id, .cores = {}};
    for (const int core : core_list(listed.value_or(""))) {
      if (std::ranges::binary_search(topology.cores, core)) node.cores.push_back(core);
    }
    if (!node.cores.empty()) topology.nodes.push_back(std::move(node));
  }
  std::size_t placed = 0;
  for (const NumaNode& node : topology.nodes) placed += node.cores.size();
  if (placed != topology.cores.size()) topology.nodes = {{.id = 0, .cores = topology.cores}};
}

std::string cpu_model(const std::string& root) {
  std::ifstream file(root + "/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    if (!line.starts_with("model name")) continue;
    const std::size_t colon = line.find(": ");
    if (colon != std::string::npos) return line.substr(colon + 2);
  }
  return "unknown";
}

}  // namespace

std::vector<int> core_list(std::string_view text) {
  std::vector<int> cores;
  while (!text.empty()) {
    const std::size_t comma = std::min(text.find(','), text.size());
    std::string_view part = text.substr(0, comma);
    while (part.starts_with(' ')) part.remove_prefix(1);
    const std::size_t dash = std::min(part.find('-'), part.size());
    const auto first = number(part.substr(0, dash));
    const auto last = dash == part.size() ? first : number(part.substr(dash + 1));
    if (!first || !last || *last < *first || *last >= CPU_SETSIZE) break;
    for (std::uint64_t core = *first; core <= *last; ++core) {
      cores.push_back(static_cast<int>(core));
    }
    text.remove_prefix(std::min(comma + 1, text.size()));
  }
  return cores;
}

std::uint32_t Topology::parallelism() const {
  const auto count = static_cast<double>(cores.size());
  const double granted = cpu_quota > 0 ? std::min(count, std::ceil(cpu_quota)) : count;
  return static_cast<std::uint32_t>(std::max(granted, 1.0));
}

Topology discover_host(const std::string& root) {
  Topology topology;
  topology.cores = allowed_cores();
  topology.cpu_quota = cpu_quota(root);
  discover_nodes(root, topology);
  discover_caches(root, topology);
  const long pages = ::sysconf(_SC_PHYS_PAGES), page = ::sysconf(_SC_PAGESIZE);
  if (pages > 0 && page > 0) {
    topology.memory_bytes = static_cast<std::uint64_t>(pages) * static_cast<std::uint64_t>(page);
  }
  topology.cpu_model = cpu_model(root);
  return topology;
}

}  // namespace arcomm
