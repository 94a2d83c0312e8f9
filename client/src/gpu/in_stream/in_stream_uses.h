// The GPU memory that the in-stream operations of one member have been called with: what is known
// to be this GPU's, so that CUDA is not asked again, and which of it they may still touch. The
// daemon knows nothing of them, and memory that is unmapped under a kernel takes every process on
// the GPU with it: so whoever takes memory away asks here first.
//
// Outlives its member, communicator and session while a block may still come: what a stream has is
// run, whatever has ended meanwhile, and an operation reads its input before it looks whether it
// may go on. Thread: any.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <utility>

#include "client/cuda/gpu.h"
#include "client/src/gpu/gpu_mailbox.h"
#include "client/src/gpu/in_stream/gpu_exchange.h"
#include "client/src/host/operation.h"
#include "proto/status.h"

namespace arcomm::client {

class InStreamUses {
 public:
  struct Parts {
    std::shared_ptr<Gpu> gpu;
    std::shared_ptr<GpuMailbox> mailbox;
    std::shared_ptr<GpuExchange> exchange;  // null: copies alone
    std::uint32_t rank = 0;
  };
  // Asked by check_unused() from now on, until forget().
  static std::shared_ptr<InStreamUses> create(Parts parts);
  // Nothing can be under way any more.
  void forget();

  // FailedPrecondition while an in-stream operation of this process on [address, +bytes) may still
  // run. Of a graph that is seen only while a replay runs, not while one waits.
  static Status check_unused(const void* address, std::uint64_t bytes);
  // The memory is about to go: what comes to lie there is asked about again.
  static void forget_memory(const void* address, std::uint64_t bytes);

  // Whether all of it was added, as memory of this GPU.
  bool knows(const void* address, std::uint64_t bytes) const;
  // As CUDA tells it now: what was known of these addresses before is of memory that is gone.
  void add(const GpuRange& range);
  void launched(const CollectiveCall& call, std::uint32_t blocks);
  void captured(const CollectiveCall& call);
  // That were launched, other than graphs'.
  std::uint32_t blocks() const;

 private:
  struct Use {
    std::uint64_t bytes = 0;
    // The blocks that the member had launched when the last ones on this memory were among them.
    std::uint64_t until = 0;
    bool in_graph = false;
  };
  using Uses = std::map<std::uintptr_t, Use>;  // by base; none overlaps another

  explicit InStreamUses(Parts parts);
  Uses::iterator first_overlapping(std::uintptr_t base);
  Use& use_of(const void* address, std::uint64_t bytes);
  void drop_ended();
  bool may_touch(std::uintptr_t base, std::uint64_t bytes);
  bool runs_blocks() const;

  const Parts parts_;
  mutable std::mutex mutex_;
  Uses uses_;
  std::size_t most_uses_;  // when there are more, those that have ended are dropped
  std::uint64_t blocks_ = 0;
};

}  // namespace arcomm::client
