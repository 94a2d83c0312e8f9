// Work on memory that may take long, touching gigabytes of new pages above all, in slices on the
// memory thread. Sessions take turns, and so do the requests of one session among themselves: what
// is asked for waits for no more than one slice of each other session. What nobody wants any more
// is dropped between two slices.
//
// Thread: the control loop, to which every answer comes exactly once; once the memory thread has
// stopped, what is left is refused with ShuttingDown.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "daemon/control/descriptors/fd_closer.h"
#include "daemon/control/descriptors/shared_memory.h"
#include "daemon/control/rpc/event_loop.h"
#include "daemon/control/rpc/task_thread.h"
#include "proto/status.h"
#include "proto/types.h"
#include "proto/unique_fd.h"
#include "transport/device/memory_groups.h"

namespace arcomm {

class FairPrefault {
 public:
  struct Parts {
    EventLoop& loop;
    TaskThread& thread;
    FdCloser& closer;                                     // of memory that did not come about
    std::uint64_t slice_bytes = std::uint64_t{16} << 20;  // some milliseconds' worth
    // What was promised to what is no job here any more; none: nothing. On the control loop.
    std::function<std::uint64_t()> promised = {};
  };
  explicit FairPrefault(Parts parts) : parts_(std::move(parts)) {}

  struct Asker {
    SessionId session;
    std::uint64_t call = 0;  // as Caller::call; 0 cannot be dropped alone
  };
  // Sealed memory of `bytes`, whole pages.
  void allocate(Asker asker, std::uint64_t bytes, std::function<void(Result<UniqueFd>)> done);
  // check_missing_pages of offered memory. No other is looked at before the answer was heard.
  void check(Asker asker, std::shared_ptr<UniqueFd> memory, std::uint64_t length_bytes,
             std::function<void(Result<MissingPages>)> done);

  // read_memory_groups, before any further slice: it takes microseconds.
  void look_at_groups(Asker asker, pid_t process,
                      std::function<void(Result<std::vector<MemoryGroup>>)> done);

  // Nobody waits for these any more: answered with `why`, once no slice of theirs runs.
  void drop_call(std::uint64_t call, const Error& why);
  void drop_session(SessionId session, const Error& why);

 private:
  struct Job {
    Asker asker;
    // On the memory thread: the next slice; the bytes it has yet to touch, 0: it has ended.
    // promised: what the others have yet to touch.
    std::function<std::uint64_t(std::uint64_t promised)> slice;
    std::function<void(const Status& dropped)> end;
    std::uint64_t missing = 0;  // after its first slice
    std::optional<Error> dropped;
  };
  struct Turn {
    SessionId session;
    std::deque<std::unique_ptr<Job>> jobs;
  };

  void queue(std::unique_ptr<Job> job, bool first = false);
  std::unique_ptr<Job> take_next();
  void run_next();
  void sliced();
  void drop(const std::function<bool(const Asker&)>& unwanted, const Error& why);

  Parts parts_;
  std::deque<Turn> turns_;        // the next one first; none is without jobs
  std::unique_ptr<Job> running_;  // its slice is on the memory thread
};

}  // namespace arcomm
