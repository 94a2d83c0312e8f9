// This thread's last failure, as arcGetLastError and arcGetLastErrorInfo show it.
#pragma once

#include <cstdint>

#include "proto/status.h"

namespace arcomm::client {

inline constexpr std::uint64_t kNoSeq = UINT64_MAX;

struct LastError {
  Error error{ErrorCode::Ok, Reason::None, "", -1};
  std::uint64_t seq = kNoSeq;
  std::uint64_t pending_seq = kNoSeq;  // of the call in progress, should it fail
};

LastError& last_error();

}  // namespace arcomm::client
