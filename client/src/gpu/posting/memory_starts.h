// The starts of one member that wait by stream memory operations. Such a wait sees one word only:
// it knows no deadline, and not that the communicator is over. So the host looks after it, and
// writes that word when nobody else will.
// Thread: any; look_after() by one at a time. Ownership: shared by the member and the watch, which
// keeps it for as long as a stream may wait.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <utility>

#include "client/cuda/gpu.h"
#include "client/src/gpu/gpu_mailbox.h"
#include "proto/gpu/device_mailbox.h"
#include "proto/status.h"

namespace arcomm::client {

class MemoryStarts {
 public:
  using Clock = std::chrono::steady_clock;

  MemoryStarts(std::shared_ptr<Gpu> gpu, std::shared_ptr<GpuMailbox> mailbox)
      : gpu_(std::move(gpu)), mailbox_(std::move(mailbox)) {}

  // Before the start is put into its stream; and when it could not be.
  void expect(LaunchPath path, std::uint32_t number, std::uint64_t timeout_ns);
  void take_back(LaunchPath path, std::uint32_t number);
  // What waits, and what will come to wait, is let go, once the daemon has had time to hear that it
  // is over: what is let go still rings.
  void end() { ended_.store(true, std::memory_order_release); }

  // False: the streams have left all of it behind. Blocks for a few words from the GPU.
  bool look_after(Clock::time_point now);

 private:
  struct Waiting {
    std::atomic<std::uint32_t> last{0};      // number of the last start
    std::uint32_t done_before = 0;           // at the last look
    std::optional<Clock::time_point> since;  // the one that runs has been seen to run
  };
  bool is_late(Waiting& path, const MailboxPath& words, Clock::time_point now) const;
  void let_go(const DeviceMailbox& words, const std::uint32_t (&last)[kLaunchPaths]);

  const std::shared_ptr<Gpu> gpu_;
  const std::shared_ptr<GpuMailbox> mailbox_;
  Waiting paths_[kLaunchPaths];
  std::atomic<std::uint64_t> timeout_ns_{0};  // the longest of them
  std::atomic<bool> ended_{false};
  std::optional<Clock::time_point> over_since_;
};

}  // namespace arcomm::client
