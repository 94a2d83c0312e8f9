#include "tests/gpu/service/client/client_id.h"

#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <fstream>
#include <thread>

#include "tests/gpu/service/client/client_options.h"

namespace arcomm::gpu {
namespace {

constexpr std::chrono::seconds kIdPatience{40};

}  // namespace

arcUniqueId exchange_id(const std::string& path) {
  arcUniqueId id;
  exchange_bytes(path, std::as_writable_bytes(std::span(id.internal)),
                 [&id] { arc(arcGetUniqueId(&id), "arcGetUniqueId"); });
  return id;
}

void exchange_bytes(const std::string& path, std::span<std::byte> bytes,
                    const std::function<void()>& make) {
  char* const place = reinterpret_cast<char*>(bytes.data());
  const auto size = static_cast<std::streamsize>(bytes.size());
  if (options.rank == 0) {
    if (::access(path.c_str(), F_OK) == 0)
      die(path + " is there already: remove it, or the other ranks take an old id");
    make();
    const std::string part = path + ".part";
    std::ofstream(part, std::ios::binary).write(place, size);
    if (std::rename(part.c_str(), path.c_str()) != 0) die("cannot write the id file " + path);
    return;
  }
  const auto deadline = std::chrono::steady_clock::now() + kIdPatience;
  for (;;) {
    std::ifstream file(path, std::ios::binary);
    if (file.read(place, size)) return;
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
