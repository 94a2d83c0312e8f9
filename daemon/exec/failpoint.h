// Places where a test may make the daemon misbehave, by the environment: ARCOMM_FAILPOINT is
//   worker.freeze   a worker that has work stands still
//   worker.lost     a worker that has work ends, as with a GPU that is lost
//   gpu.fault       what is launched for a called operation (not speculatively) reads nobody's
//                   memory
// Compiled in only where ARCOMM_FAILPOINTS is defined; otherwise a failpoint is a constant false
// and costs nothing.
#pragma once

#include <string_view>

#ifdef ARCOMM_FAILPOINTS
#include <cstdlib>
#endif

namespace arcomm {

// Read the environment once, at start; the answer is meant to be kept.
inline bool failpoint(std::string_view name) {
#ifdef ARCOMM_FAILPOINTS
  const char* chosen = std::getenv("ARCOMM_FAILPOINT");
  return chosen != nullptr && name == chosen;
#else
  static_cast<void>(name);
  return false;
#endif
}

}  // namespace arcomm
