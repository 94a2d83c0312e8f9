// Lets go of large mappings on a thread of its own: giving back gigabytes of pages takes
// milliseconds, in which a worker would serve nobody. Thread: give() is the owner's, one at a time.
// At most kMaxQueued wait; what comes on top is unmapped by who brings it. The destructor finishes
// what is queued.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <thread>
#include <vector>

#include "transport/peer/host_shm.h"

namespace arcomm {

class Unmapper {
 public:
  static constexpr std::size_t kMaxQueued = 256;
  // Below this the hand-over costs as much as the deed.
  static constexpr std::uint64_t kWorthwhileBytes = 1 << 20;

  Unmapper() = default;
  ~Unmapper();
  Unmapper(const Unmapper&) = delete;
  Unmapper& operator=(const Unmapper&) = delete;

  // Takes the mapping over, whoever unmaps it.
  void give(PeerMapping mapping);
  // Mappings that the thread has unmapped. Any thread.
  std::uint64_t unmapped() const;

 private:
  bool start();  // the thread, with the first large mapping
  void run();

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<PeerMapping> queued_;
  bool stopping_ = false;
  std::uint64_t unmapped_ = 0;
  std::thread thread_;  // last: it uses the others
};

}  // namespace arcomm
