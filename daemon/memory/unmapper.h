// Releases clients' memory on a thread of its own: the thread that drops the last reference gives
// the pages back, and gigabytes of them take milliseconds, in which a worker would serve nobody. A
// small mapping may be the last of a large file, so its size tells nothing. Thread: give() is the
// owner's, one at a time. At most kMaxQueued wait; the caller releases what exceeds that.
// The destructor finishes what is queued.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "proto/unique_fd.h"
#include "transport/peer/host_shm.h"

namespace arcomm {

class Unmapper {
 public:
  static constexpr std::size_t kMaxQueued = 4096;

  Unmapper() = default;
  ~Unmapper();
  Unmapper(const Unmapper&) = delete;
  Unmapper& operator=(const Unmapper&) = delete;

  // Takes it over, whichever thread releases it.
  void give(PeerMapping mapping) { give(Held{std::move(mapping), {}}); }
  void give(UniqueFd memory) { give(Held{{}, std::move(memory)}); }  // that could not be mapped
  // What the thread has let go. Any thread.
  std::uint64_t released() const;

 private:
  struct Held {
    PeerMapping mapping;
    UniqueFd memory;
  };
  void give(Held held);
  bool start();  // the thread, with the first one
  void run();

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<Held> queued_;
  bool stopping_ = false;
  std::uint64_t released_ = 0;
  std::thread thread_;  // last: it uses the others
};

}  // namespace arcomm
