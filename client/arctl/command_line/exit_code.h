// What arctl's exit status says. Scripts branch on these numbers: they never change.
#pragma once

#include "proto/status.h"

namespace arcomm::arctl {

enum class ExitCode : int {
  Ok = 0,
  Failure = 1,
  Usage = 2,
  NotRunning = 3,  // no daemon answers on the admin socket
  Permission = 4,
  NotFound = 5,  // the named communicator, session or metric does not exist
  Degraded = 6,  // the daemon answers, and something is wrong with it
  Timeout = 7,
};

ExitCode exit_code_for(const Error& failure);

// Prints "arctl: <message>" on stderr and gives the code that belongs to the error.
ExitCode report(const Error& failure);

}  // namespace arcomm::arctl
