// What has been launched for one communicator before its ranks called it: which operations, in
// which state. Values; see Speculator. Thread: the worker's.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "daemon/exec/gpu/speculation/prediction.h"
#include "kernels/cuda_algorithms.h"
#include "proto/gpu/device_mailbox.h"
#include "proto/types.h"

namespace arcomm {

// What opens each rank's gate: the doorbell with this number, that rank's plan and their identity.
struct LaunchGate {
  std::uint32_t number = 0;  // 0: none
  PlanTuple plans{};

  std::uint64_t word(Rank rank) const {
    return to_word(Doorbell{.number = number,
                            .plan = plans[static_cast<std::size_t>(rank)].index,
                            .identity = plans.identity});
  }
  friend bool operator==(const LaunchGate&, const LaunchGate&) = default;
};

// An operation that was launched before it was called.
struct SpeculativeLaunch {
  LaunchGate gate;
  CudaAlgorithm algorithm = CudaAlgorithm::Alone;
  std::uint64_t since_ns = 0;
};

// Those of one communicator, in the order in which they will be called.
struct Speculation {
  // With one, each waited for the CPU to launch it and for the end of the one before in the same
  // stream: 1 MB between two took 13.7 us, one after the other, and 11.5 with two.
  static constexpr std::size_t kMost = 2;

  enum class State : std::uint8_t {
    None,     // there are none
    Waiting,  // for their doorbells
    Leaving,  // they were cancelled, and their kernels are still to be seen to end
    Ran       // they were cancelled too late: all ranks had called them, and they have ended well
  };
  State state = State::None;
  std::vector<SpeculativeLaunch> launched;
  std::uint64_t begun_ns = 0;   // some ranks were seen to have called the first
  std::uint64_t opened_ns = 0;  // the gate of what runs before them, by the daemon

  void pop() {
    launched.erase(launched.begin());
    begun_ns = 0;
    if (launched.empty()) state = State::None;
  }
  void clear() {
    launched.clear();
    begun_ns = 0;
    state = State::None;
  }
};

}  // namespace arcomm
