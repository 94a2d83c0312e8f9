#include "tests/gpu/service/client_id.h"

#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <fstream>
#include <thread>

#include "tests/gpu/service/client_options.h"

namespace arcomm::gpu {
namespace {

constexpr std::chrono::seconds kIdPatience{40};

}  // namespace

arcUniqueId exchange_id(const std::string& path) {
  arcUniqueId id;
  if (options.rank == 0) {
    if (::access(path.c_str(), F_OK) == 0)
      die(path + " is there already: remove it, or the other ranks take an old id");
    arc(arcGetUniqueId(&id), "arcGetUniqueId");
    const std::string part = path + ".part";
    std::ofstream(part, std::ios::binary).write(id.internal, sizeof(id.internal));
    if (std::rename(part.c_str(), path.c_str()) != 0) die("cannot write the id file " + path);
    return id;
  }
  const auto deadline = std::chrono::steady_clock::now() + kIdPatience;
  for (;;) {
    std::ifstream file(path, std::ios::binary);
    if (file.read(id.internal, sizeof(id.internal))) return id;
    if (std::chrono::steady_clock::now() >= deadline) die("rank 0 wrote no id to " + path);
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
}

void meet_by_files(const std::string& path) {
  const auto here = [&path](int rank) { return path + ".here." + std::to_string(rank); };
  std::ofstream(here(options.rank)).close();
  const auto deadline = std::chrono::steady_clock::now() + kIdPatience;
  for (int rank = 0; rank < options.ranks; ++rank) {
    while (::access(here(rank).c_str(), F_OK) != 0) {
      if (std::chrono::steady_clock::now() >= deadline)
        die("rank " + std::to_string(rank) + " did not come: no " + here(rank));
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
    }
  }
}

}  // namespace arcomm::gpu
