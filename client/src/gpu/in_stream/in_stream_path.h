// A member's operations that its own streams run (proto/exchange.h): any memory of its GPU serves,
// and neither the daemon nor CUDA is asked about memory that was used before.
// Thread: any for check_memory(), blocks() and forget(); launch() under its owner's lock, as the
// order of launches is the order of operations.
#pragma once

#include <cstdint>
#include <memory>

#include "client/cuda/gpu.h"
#include "client/src/gpu/gpu_mailbox.h"
#include "client/src/gpu/in_stream/gpu_exchange.h"
#include "client/src/gpu/in_stream/in_stream_uses.h"
#include "client/src/host/operation.h"
#include "proto/in_stream_call.h"
#include "proto/status.h"

namespace arcomm::client {

class InStreamPath {
 public:
  struct Parts {
    std::shared_ptr<Gpu> gpu;
    std::shared_ptr<GpuMailbox> mailbox;
    std::shared_ptr<GpuExchange> exchange;
    std::uint32_t rank = 0, ranks = 0;
  };
  explicit InStreamPath(Parts parts);

  // InvalidArgument unless both sides are memory of this rank's GPU, to their end.
  Status check_memory(const CollectiveCall& call);

  struct Start {
    InStreamShape shape;
    std::uint64_t timeout_ns = 0;
    bool is_captured = false;
    bool waits_behind = false;  // other streams may have the operations before this one
    void* stream = nullptr;
  };
  Status launch(const CollectiveCall& call, const Start& start);

  // That were launched, other than graphs'.
  std::uint32_t blocks() const { return uses_->blocks(); }
  // Nothing can be under way any more.
  void forget() { uses_->forget(); }

 private:
  Status check_memory(const void* address, std::uint64_t bytes);

  const Parts parts_;
  const std::shared_ptr<InStreamUses> uses_;
};

}  // namespace arcomm::client
