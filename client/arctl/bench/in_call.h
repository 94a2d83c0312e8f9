// Operations within the ranks' calls, and the same by the daemon's worker, timed one after the
// other by rank processes of this machine: what `arctl tune` finds their bound by. One thread; the
// ranks are gone when it returns.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "client/arctl/admin.h"
#include "proto/arcommd/v1/control.pb.h"
#include "proto/status.h"

namespace arcomm::arctl {

struct InCallMeasure {
  std::string runtime_dir;                    // "" means the environment's
  std::chrono::milliseconds budget{10'000};   // numbers of ranks that no longer fit are left out
  std::chrono::milliseconds timeout{30'000};  // of one operation
  std::function<void(const ::arcommd::v1::TuneInCall&)> seen;  // after each size
};

// Up to 64 KB, between 2, 4 and 8 ranks, no more than two to a core: adds what it could measure to
// `found`, whatever it returns; nothing where calls do not meet here, by the daemon's setting or
// for want of what it takes. The worker's figure is of a plan on shared memory, the least that it
// takes. DataLoss: a sum was wrong.
Status measure_in_call(Admin& admin, const InCallMeasure& how,
                       std::vector<::arcommd::v1::TuneInCall>& found);

}  // namespace arcomm::arctl
