#include "client/src/host/memory/callers_memfd.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <charconv>
#include <cinttypes>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <string>
#include <string_view>

namespace arcomm::client {
namespace {

struct MapLine {
  std::uintptr_t begin = 0, end = 0;
  std::uint64_t offset = 0;
  dev_t device = 0;
  ino_t inode = 0;
};

// The line of /proc/self/maps that covers [begin, end), if it is a shared and writable memfd.
std::optional<MapLine> line_covering(std::uintptr_t begin, std::uintptr_t end) {
  std::ifstream maps("/proc/self/maps");
  for (std::string text; std::getline(maps, text);) {
    MapLine line;
    char access[5] = {};
    unsigned major_number = 0, minor_number = 0;
    unsigned long inode = 0;
    if (std::sscanf(text.c_str(), "%" SCNxPTR "-%" SCNxPTR " %4s %" SCNx64 " %x:%x %lu",
                    &line.begin, &line.end, access, &line.offset, &major_number, &minor_number,
                    &inode) != 7) {
      continue;
    }
    if (begin < line.begin || begin >= line.end) continue;
    if (end > line.end || std::string_view(access) != "rw-s") return std::nullopt;
    if (text.find("/memfd:") == std::string::npos) return std::nullopt;
    line.device = makedev(major_number, minor_number);
    line.inode = inode;
    return line;
  }
  return std::nullopt;
}

UniqueFd sealed_descriptor_of(const MapLine& line) {
  DIR* folder = ::opendir("/proc/self/fd");
  if (folder == nullptr) return {};
  UniqueFd found;
  while (const dirent* entry = ::readdir(folder)) {
    int fd = -1;
    const char* name = entry->d_name;
    std::from_chars(name, name + std::strlen(name), fd);
    struct stat info {};
    if (fd < 0 || ::fstat(fd, &info) != 0) continue;
    if (info.st_ino != line.inode || info.st_dev != line.device) continue;
    const int seals = ::fcntl(fd, F_GET_SEALS);
    if (seals < 0 || (seals & F_SEAL_SHRINK) == 0) continue;
    found = duplicate(fd);
    break;
  }
  ::closedir(folder);
  return found;
}

}  // namespace

std::optional<CallersMemfd> find_callers_memfd(const void* address, std::size_t bytes) {
  const auto page = static_cast<std::uintptr_t>(::sysconf(_SC_PAGESIZE));
  const auto first = reinterpret_cast<std::uintptr_t>(address);
  const std::uintptr_t begin = first / page * page;
  const std::uintptr_t end = (first + bytes + page - 1) / page * page;
  const std::optional<MapLine> line = line_covering(begin, end);
  if (!line) return std::nullopt;
  CallersMemfd mapping;
  mapping.memory = sealed_descriptor_of(*line);
  if (!mapping.memory) return std::nullopt;
  mapping.offset = line->offset + (begin - line->begin);
  mapping.first_page = reinterpret_cast<std::byte*>(begin);
  mapping.bytes = end - begin;
  struct stat info {};
  if (::fstat(mapping.memory.get(), &info) != 0 ||
      mapping.offset + mapping.bytes > static_cast<std::uint64_t>(info.st_size)) {
    return std::nullopt;  // the mapping reaches past the file: its last pages would fault
  }
  return mapping;
}

}  // namespace arcomm::client
