// The exit status of a daemon that could not start. Pure; any thread.
#pragma once

#include "proto/status.h"

namespace arcomm {

// 2 and 3 do not get better by themselves: the unit's RestartPreventExitStatus= names them.
enum ExitStatus { kOk = 0, kFailure = 1, kUsage = 2, kAlreadyRunning = 3 };

inline ExitStatus exit_status_for(const Error& failure) {
  if (failure.code == ErrorCode::AlreadyExists) return kAlreadyRunning;
  // A setting may be right and its file out of reach for now, as on a full disk: worth a restart.
  const bool is_lasting = failure.code == ErrorCode::InvalidArgument ||
                          failure.code == ErrorCode::NotFound ||
                          failure.code == ErrorCode::PermissionDenied;
  return failure.reason == Reason::BadConfig && is_lasting ? kUsage : kFailure;
}

}  // namespace arcomm
