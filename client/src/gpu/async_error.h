// What ended a communicator on a GPU, for calls and for what is on the streams: what its mailbox
// says (proto/gpu/device_mailbox.h), or what this process has closed it with.
// Thread: any. Blocks for a few words from the GPU where that is said.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>

#include "client/cuda/gpu.h"
#include "client/src/gpu/gpu_mailbox.h"
#include "proto/gpu/device_mailbox.h"
#include "proto/status.h"

namespace arcomm::client {

class AsyncError {
 public:
  AsyncError(std::shared_ptr<Gpu> gpu, std::shared_ptr<GpuMailbox> mailbox)
      : gpu_(std::move(gpu)), mailbox_(std::move(mailbox)) {}

  // What is known to have ended it. Cheap while nothing has.
  Status usable() const;
  // Every start that waits, and every later one, ends with `why`. Once; the first `why` counts.
  // Blocks.
  void close(const Error& why);
  // What ended it, as the GPU knows it; Ok while nothing did, or while the GPU does not say in
  // time. Blocks.
  Error look();

 private:
  void await_verdict(DeviceMailbox& now) const;
  void end(const Error& why);

  const std::shared_ptr<Gpu> gpu_;
  const std::shared_ptr<GpuMailbox> mailbox_;
  std::atomic<bool> is_over_{false};
  mutable std::mutex mutex_;
  std::optional<Error> why_;
  bool is_closed_ = false;  // the GPU was told
};

}  // namespace arcomm::client
