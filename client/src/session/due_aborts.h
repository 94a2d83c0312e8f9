// The members that gave up by themselves and of which the daemon has not heard yet. Their peers
// wait until it has. Thread: any. Its mutex is not held while the daemon is told.
#pragma once

#include <atomic>
#include <functional>
#include <mutex>
#include <utility>
#include <vector>

#include "client/src/session/deadline.h"
#include "proto/status.h"
#include "proto/types.h"

namespace arcomm::client {

class DueAborts {
 public:
  // Has the daemon abort the member; Ok, too, where nobody is left to be told.
  using Tell = std::function<Status(MemberId, Deadline)>;
  explicit DueAborts(Tell tell) : tell_(std::move(tell)) {}

  void add(MemberId member);
  // The daemon hears of it otherwise: the member leaves.
  void forget(MemberId member);
  // Whether tell() has something to do. Cheap.
  bool any() const { return any_.load(std::memory_order_acquire); }
  // What the daemon does not hear it is told the next time. Blocks for 20 ms at most, and only when
  // there are any.
  void tell();

 private:
  struct Due {
    MemberId member;
    bool is_being_told = false;
  };
  std::vector<MemberId> take();
  void put_back(const std::vector<MemberId>& taken, const std::vector<MemberId>& missed);

  const Tell tell_;
  std::mutex mutex_;
  std::vector<Due> due_;
  std::atomic<bool> any_{false};  // whether some are not being told
};

}  // namespace arcomm::client
