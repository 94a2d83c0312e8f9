// Which GPU memory the in-stream operations of one member may still touch. The daemon knows nothing
// of them, and memory that is unmapped under a kernel takes every process on the GPU with it: so
// whoever takes memory away asks here first.
//
// Outlives its member, communicator and session while a block may still come: what a stream has is
// run, whatever has ended meanwhile, and an operation reads its input before it looks whether it
// may go on. Thread: any.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <utility>

#include "client/cuda/gpu.h"
#include "client/src/gpu/gpu_exchange.h"
#include "client/src/gpu/gpu_mailbox.h"
#include "proto/status.h"

namespace arcomm::client {

// An allocation, as CUDA knows it. Stays with its InStreamUses.
struct InStreamUse {
  std::uint64_t bytes = 0;
  // The blocks that the member had launched when the last ones on this memory were among them.
  std::uint64_t until = 0;
  bool in_graph = false;
};

class InStreamUses {
 public:
  struct Parts {
    std::shared_ptr<Gpu> gpu;
    std::shared_ptr<GpuMailbox> mailbox;
    std::shared_ptr<GpuExchange> exchange;
    std::uint32_t rank = 0;
  };
  // Asked by check_unused() from now on, until forget().
  static std::shared_ptr<InStreamUses> create(Parts parts);
  // Nothing can be under way any more.
  void forget();

  // FailedPrecondition while an in-stream operation of this process on the allocation around
  // `address` may still run. Of a graph that is seen only while a replay runs, not while one waits.
  static Status check_unused(const void* address);

  InStreamUse& of(const GpuRange& range);
  void launched(InStreamUse& send, InStreamUse& recv, std::uint32_t blocks);
  void captured(InStreamUse& send, InStreamUse& recv);
  // That were launched, other than graphs'.
  std::uint32_t blocks() const;

 private:
  explicit InStreamUses(Parts parts) : parts_(std::move(parts)) {}
  bool may_touch(const void* address);
  bool runs_blocks() const;

  const Parts parts_;
  mutable std::mutex mutex_;
  std::map<std::uintptr_t, InStreamUse> uses_;  // by base
  std::uint64_t blocks_ = 0;
};

}  // namespace arcomm::client
