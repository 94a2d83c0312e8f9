// Calls between arcGroupStart and arcGroupEnd: collected, then submitted together, then waited for,
// so that one thread can drive several ranks. Thread: one group per thread; nothing is shared.
#pragma once

#include <chrono>
#include <functional>
#include <vector>

#include "client/src/host/operation.h"
#include "client/src/session/communicator.h"
#include "proto/status.h"

namespace arcomm::client {

class Group {
 public:
  static Group& of_this_thread();

  bool open() const { return depth_ > 0; }
  void start() { ++depth_; }
  // Of the outermost group: runs what was collected. Returns the first failure.
  Status end();

  // A communicator to be created; all of a group are created at the same time, on threads of their
  // own.
  void create(std::function<Status()> call) { creations_.push_back(std::move(call)); }
  // An operation to be started; a blocking one is waited for.
  // Its time runs from the group's end.
  void add(Operation& operation, std::chrono::milliseconds timeout, bool blocking) {
    operations_.push_back({&operation, timeout, blocking});
  }
  // A communicator to be left once the group's operations are done.
  void destroy(std::function<Status()> call) { destructions_.push_back(std::move(call)); }

 private:
  struct Collected {
    Operation* operation = nullptr;
    std::chrono::milliseconds timeout{};
    bool blocking = false;
  };
  int depth_ = 0;
  std::vector<std::function<Status()>> creations_;
  std::vector<Collected> operations_;
  std::vector<std::function<Status()>> destructions_;
};

}  // namespace arcomm::client
