// A member's operations that its own streams run: those with the other ranks through the exchanges
// (proto/gpu/exchange.h), and all of a communicator's only rank, which are copies. Any memory of
// its GPU serves, and neither the daemon nor CUDA is asked about memory that was used before.
// Thread: any for prepare(), load(), blocks() and forget(); launch() under its owner's lock, as the
// order of launches is the order of operations.
#pragma once

#include <cstdint>
#include <memory>

#include "client/cuda/gpu.h"
#include "client/src/gpu/gpu_mailbox.h"
#include "client/src/gpu/in_stream/gpu_exchange.h"
#include "client/src/gpu/in_stream/in_stream_uses.h"
#include "client/src/host/operation.h"
#include "proto/gpu/launch_table.h"
#include "proto/status.h"

namespace arcomm::client {

// When what is launched early behind an in-stream operation may begin, and so which of that is
// right.
enum class Trigger {
  Early,  // "early", the default: before its result is stored. It must wait (griddepcontrol.wait)
  Late    // "late": when it has ended, whatever the kernel behind it waits for
};
// $ARCOMM_TRIGGER. InvalidArgument for any other word.
Result<Trigger> trigger_from_environment();

class InStreamPath {
 public:
  struct Parts {
    std::shared_ptr<Gpu> gpu;
    std::shared_ptr<GpuMailbox> mailbox;
    std::shared_ptr<GpuExchange> exchange;  // null where the rank is the only one
    std::uint32_t rank = 0, ranks = 0;
    Trigger trigger = Trigger::Early;
  };
  explicit InStreamPath(Parts parts);

  // InvalidArgument unless both sides are memory of this rank's GPU, to their end. Loads the
  // kernels of the call's codec, if it is the first with it.
  Status prepare(const CollectiveCall& call);
  // The kernels alone.
  Status load(Codec codec);

  struct Start {
    Launch launch;
    std::uint64_t timeout_ns = 0;
    bool is_captured = false;
    std::uint32_t identity = kNoIdentity;
    bool waits_behind = false;  // other streams may have the operations before this one
    void* stream = nullptr;
  };
  Status launch(const CollectiveCall& call, const Start& start);

  // That were launched, other than graphs'; a copy is one.
  std::uint32_t blocks() const { return uses_->blocks(); }
  // Nothing can be under way any more.
  void forget() { uses_->forget(); }

 private:
  Status check_memory(const void* address, std::uint64_t bytes);
  Status reduce(const CollectiveCall& call, const Start& start);
  Status copy(const CollectiveCall& call, const Start& start);

  const Parts parts_;
  const std::shared_ptr<InStreamUses> uses_;
};

}  // namespace arcomm::client
