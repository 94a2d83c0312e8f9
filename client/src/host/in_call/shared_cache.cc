#include "client/src/host/in_call/shared_cache.h"

#include <fstream>

namespace arcomm::client {
namespace {

std::string first_line(const std::string& file) {
  std::string line;
  std::ifstream in(file);
  std::getline(in, line);
  return line;
}

}  // namespace

bool cores_share_a_cache(const std::string& root) {
  const std::string cpus = root + "/sys/devices/system/cpu/";
  const std::string online = first_line(cpus + "online");
  return !online.empty() && online == first_line(cpus + "cpu0/cache/index3/shared_cpu_list");
}

}  // namespace arcomm::client
