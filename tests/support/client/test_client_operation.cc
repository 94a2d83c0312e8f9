#include "tests/support/client/test_client_operation.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>

namespace arcomm::support {

Memory::Memory(const std::string& kind, std::size_t bytes)
    : kind_(kind), bytes_(std::max<std::size_t>(bytes, 1)) {
  if (kind == "alloc") {
    result_ = arcMemAlloc(&base_, bytes_);
  } else if (kind == "shared") {
    const int fd = ::memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    const bool sized = fd >= 0 && ::ftruncate(fd, static_cast<off_t>(bytes_)) == 0 &&
                       ::fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK) == 0;
    base_ = sized ? ::mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0) : MAP_FAILED;
    if (fd >= 0) ::close(fd);
    if (base_ == MAP_FAILED) result_ = arcResourceExhausted;
    if (base_ != MAP_FAILED) result_ = arcMemRegister(base_, bytes_);
  } else {
    base_ = std::aligned_alloc(64, (bytes_ + 64 + 63) / 64 * 64);
    if (kind == "registered") result_ = arcMemRegister(base_, bytes_);
  }
}

Memory::~Memory() {
  if (kind_ == "alloc") {
    if (result_ == arcSuccess) arcMemFree(base_);
    return;
  }
  if ((kind_ == "registered" || kind_ == "shared") && result_ == arcSuccess)
    arcMemDeregister(base_);
  if (kind_ == "shared") {
    if (base_ != MAP_FAILED) ::munmap(base_, bytes_);
  } else {
    std::free(base_);
  }
}

Options parse_options(const Words& words, std::size_t from) {
  Options options;
  for (std::size_t i = from; i < words.size(); ++i) {
    const std::size_t equals = words[i].find('=');
    const std::string key = words[i].substr(0, equals);
    const std::string value = equals == std::string::npos ? "" : words[i].substr(equals + 1);
    if (key == "place") options.place = value;
    if (key == "mem") options.mem = value;
    if (key == "recv") options.recv = value;
    if (key == "salt") options.salt = std::strtoull(value.c_str(), nullptr, 10);
    if (key == "codec") options.codec = static_cast<int>(std::strtol(value.c_str(), nullptr, 10));
    if (key == "snr") options.least_snr_db = std::strtod(value.c_str(), nullptr);
    if (key == "error") options.most_relative_error = std::strtod(value.c_str(), nullptr);
    options.has_config |= key == "codec" || key == "snr" || key == "error";
    if (key == "n") options.n = std::strtoull(value.c_str(), nullptr, 10);
  }
  if (options.recv.empty()) options.recv = options.mem;
  return options;
}

arcAllReduceConfig_t config_of(const Options& options) {
  arcAllReduceConfig_t config = ARC_ALL_REDUCE_CONFIG_INITIALIZER;
  config.codec = static_cast<arcCodec_t>(options.codec);
  config.least_snr_db = options.least_snr_db;
  config.most_relative_error = options.most_relative_error;
  return config;
}

}  // namespace arcomm::support
