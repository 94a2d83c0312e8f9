// Finds the memfd behind memory that the caller mapped. No state; any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include "proto/unique_fd.h"

namespace arcomm::client {

struct CallersMemfd {
  UniqueFd memory;           // a descriptor of our own
  std::uint64_t offset = 0;  // in the memfd, of the page that holds the first byte
  std::byte* first_page = nullptr;
  std::size_t bytes = 0;  // whole pages, to the one that holds the last byte
};

// nullopt where the range is not one shared, writable mapping of a memfd with F_SEAL_SHRINK that
// this process still has a descriptor of.
std::optional<CallersMemfd> find_callers_memfd(const void* address, std::size_t bytes);

}  // namespace arcomm::client
