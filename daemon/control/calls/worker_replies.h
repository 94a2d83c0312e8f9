// A worker answers on its own thread, or, when it is stuck, not at all. What is made here for its
// `done` parameter brings the answer to the control loop, or a DeadlineExceeded in its place.
// Thread: on_loop() on the control loop; the function that it returns may be called on any.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "daemon/control/rpc/event_loop.h"
#include "proto/status.h"

namespace arcomm {

inline constexpr std::chrono::seconds kWorkerLimit{10};  // an idle worker answers in microseconds

class WorkerReplies {
 public:
  explicit WorkerReplies(EventLoop& loop, std::chrono::milliseconds limit = kWorkerLimit)
      : loop_(loop), limit_(limit) {}

  // `then` runs exactly once. what: "open the session", for the message. late: hears the worker's
  // answer when that comes after all, to undo or to complete what nobody waits for any more; what
  // it holds lives until then.
  template <typename T>
  std::function<void(Result<T>)> on_loop(std::string what, std::function<void(Result<T>)> then,
                                         std::function<void(Result<T>)> late = {}) {
    struct Pending {
      std::function<void(Result<T>)> then, late;
      EventLoop::TimerKey limit;
    };
    auto pending = std::make_shared<Pending>(Pending{std::move(then), std::move(late), {}});
    pending->limit = loop_.after(limit_, [pending, what = std::move(what), limit = limit_] {
      const auto waiting = std::exchange(pending->then, nullptr);
      waiting(error(ErrorCode::DeadlineExceeded, Reason::Timeout, "the device worker did not ",
                    what, " within ", limit.count(), " ms: see arctl status"));
    });
    return [&loop = loop_, pending](Result<T> result) {
      // Shared, since a posted function can be copied, and a result may own descriptors.
      auto held = std::make_shared<Result<T>>(std::move(result));
      loop.post([&loop, pending, held] {
        const auto overdue = std::exchange(pending->late, nullptr);
        if (!pending->then) {
          if (overdue) overdue(std::move(*held));
          return;
        }
        loop.cancel(pending->limit);
        const auto now = std::exchange(pending->then, nullptr);
        now(std::move(*held));
      });
    };
  }

 private:
  EventLoop& loop_;
  const std::chrono::milliseconds limit_;
};

}  // namespace arcomm
