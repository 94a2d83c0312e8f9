// What a rank may be told when something breaks, by name: code, reason and rank, and how soon.
#pragma once

#include <string>

#include "tests/gpu/faults/fault_work.h"

namespace arcomm::gpu {

// Ends the process (die) unless the failure is of the kind:
//   daemon-lost   the daemon is gone
//   daemon-stops  the daemon is about to go, or gone
//   gpu-lost      the daemon's GPU is in error, or already the daemon is gone for that
//   peer-lost     rank `culprit` died: heard before the deadline
//   peer-broken   rank `culprit` died or stands still: heard by the deadline
//   peer-late     rank `culprit` did not come by the deadline
//   self-late     this rank did not come by the deadline
//   crossed       two communicators are called in opposite order
//   self-broken   this process's own context is in error
void expect(const Failure& failure, const std::string& kind, int culprit);

}  // namespace arcomm::gpu
