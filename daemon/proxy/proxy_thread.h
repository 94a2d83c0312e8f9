// The thread of a ProxyEngine: drives it while something moves, waits adaptively when nothing does.
// Threads: create, run, ring and times from any; stopping is its destructor's.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "daemon/proxy/adaptive_wait.h"
#include "daemon/proxy/proxy_engine.h"
#include "proto/status.h"

namespace arcomm::proxy {

class ProxyThread {
 public:
  // `events` outlives it and is called on the thread.
  static Result<std::unique_ptr<ProxyThread>> start(WaitPolicy policy, ProxyEvents& events);
  // Ends the thread wherever its FIFOs are; wires and kernels that use them must be over.
  ~ProxyThread();

  // Has it run on the thread, soon, in the order of calls: what is not done for every operation.
  void run(std::function<void(ProxyEngine&)> task);
  // After FifoOrders::begin(), and by CPUs that fill FIFOs when a doorbell says so.
  void ring() { wait_->ring(); }
  WaitTimes times() const { return wait_->times(); }

 private:
  ProxyThread(std::unique_ptr<AdaptiveWait> wait, ProxyEvents& events)
      : wait_(std::move(wait)), engine_(events) {}
  void loop();
  bool run_tasks();
  bool last_look(bool asleep);

  std::unique_ptr<AdaptiveWait> wait_;
  ProxyEngine engine_;  // the thread's
  std::atomic<bool> stops_{false};
  std::atomic<bool> has_tasks_{false};
  std::mutex mutex_;
  std::vector<std::function<void(ProxyEngine&)>> tasks_;  // under mutex_
  std::thread thread_;                                    // last: it uses all others
};

}  // namespace arcomm::proxy
