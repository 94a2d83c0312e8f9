// The ways of operations between GPUs that the daemon launches nothing for, as tuning tables,
// launch tables and explanations speak of them: their names, and how far the resident grid goes.
#pragma once

#include <cstdint>
#include <string_view>

#include "proto/gpu/device_mailbox.h"

namespace arcomm {

inline constexpr std::string_view kResidentName = "resident";
inline constexpr std::string_view kInStreamName = "in_stream";

// Up to which size the resident grid takes operations. It has few SMs: of 256 KB between two GPUs
// it makes 10 us, of 64 KB between four 8.7, and what was launched speculatively on many 9 and 8.
constexpr std::uint64_t most_resident_bytes(std::uint32_t ranks) {
  return ranks < 2 ? 0 : ranks == 2 ? kMaxResidentBytes : kMaxResidentBytes / 4;
}

}  // namespace arcomm
