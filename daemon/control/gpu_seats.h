// The places in each GPU's resident grid, of which every communicator of several ranks takes one on
// each of its GPUs, and whose they are: no user gets all of a GPU's (fair_share.h). A seat is an
// object and must not outlive its GpuSeats. Thread: the control loop.
#pragma once

#include <sys/types.h>

#include <map>
#include <memory>
#include <string>

#include "daemon/control/access/fair_share.h"
#include "proto/status.h"

namespace arcomm {

class Metrics;

class GpuSeats {
 public:
  class Seat {
   public:
    Seat(FairShare& shares, uid_t uid) : shares_(shares), uid_(uid) { shares_.take(uid_); }
    ~Seat() { shares_.give_back(uid_); }
    Seat(const Seat&) = delete;
    Seat& operator=(const Seat&) = delete;

   private:
    FairShare& shares_;
    uid_t uid_;
  };
  using SeatPtr = std::shared_ptr<Seat>;

  explicit GpuSeats(Metrics& metrics) : metrics_(metrics) {}

  // ResourceExhausted/Quota naming the GPU and whose share is used up.
  Result<SeatPtr> take(uid_t uid, const std::string& gpu);
  // By the names of the GPUs that were asked for.
  const std::map<std::string, FairShare>& shares() const { return by_gpu_; }

 private:
  Metrics& metrics_;
  std::map<std::string, FairShare> by_gpu_;  // nothing is removed: seats refer to it
};

}  // namespace arcomm
