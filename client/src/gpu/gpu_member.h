// One rank of a communicator on a GPU, in one epoch: takes each operation the way that the daemon's
// table says, in-stream (InStreamPath) or posted to the daemon (GpuPlans, PostedStarts), one start
// after another.
// Thread: any; one lock, under which the daemon may be asked for a plan. Ownership: the Member.
// What a graph or a stream may still run keeps its mapping: see the destructor.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "client/cuda/gpu.h"
#include "client/src/gpu/async_error.h"
#include "client/src/gpu/call_notes.h"
#include "client/src/gpu/gpu_mailbox.h"
#include "client/src/gpu/gpu_plan_cache.h"
#include "client/src/gpu/gpu_plans.h"
#include "client/src/gpu/in_stream/gpu_exchange.h"
#include "client/src/gpu/in_stream/in_stream_path.h"
#include "client/src/gpu/memory/gpu_buffer.h"
#include "client/src/gpu/posting/posted_starts.h"
#include "client/src/gpu/stream_order.h"
#include "client/src/host/collective_call.h"
#include "client/src/session/deadline.h"
#include "client/src/session/deadline_mutex.h"
#include "proto/gpu/launch_table.h"
#include "proto/status.h"

namespace arcomm::client {

class GpuMember {
 public:
  struct Parts {
    std::shared_ptr<Gpu> gpu;
    std::shared_ptr<GpuMailbox> mailbox;
    std::shared_ptr<GpuExchange> exchange;  // null: `launches` has nothing in-stream
    LaunchTable launches;
    std::string why_no_codecs = {};  // where the daemon says so: on several nodes
    PostMode post = PostMode::Kernel;
    MemberId member;
    std::uint32_t rank = 0, ranks = 0;
    Trigger trigger = Trigger::Early;  // of in-stream operations
    GpuPlans::Daemon daemon;
  };
  explicit GpuMember(Parts parts);
  // Unmaps the mailbox when no start can be under way and no graph holds one; otherwise it stays
  // mapped, closed, until the process ends.
  ~GpuMember();
  GpuMember(const GpuMember&) = delete;
  GpuMember& operator=(const GpuMember&) = delete;

  Gpu& gpu() const { return *parts_.gpu; }

  // Which path the daemon wants it to take.
  Launch launch_of(const CollectiveCall& call) const {
    return parts_.launches.find(launch_key_of(call));
  }
  // None, too, where the codec that pays does not serve so long an operation.
  Codec codec_for(const ErrorClass& wanted, const CollectiveCall& call) const;
  // Whether an operation may have this codec; the error says why not.
  Status check_codec(const OperationSpec& call, Codec codec) const;
  // Loads its kernels ahead of the first call. Refused where not even the shortest may have it.
  Status prepare_codec(Codec codec);
  // What needs no daemon: puts it on the stream and returns; nobody else has to know of it, nor of
  // its memory. check_in_stream: the same without the start.
  Status all_reduce_in_stream(const CollectiveCall& call, const Launch& launch,
                              std::uint64_t timeout_ms, void* stream, Deadline deadline);
  Status check_in_stream(const CollectiveCall& call) { return in_stream_->prepare(call); }

  // What is not: puts the start of the operation on the stream and returns.
  Status all_reduce(const CollectiveCall& call, const GpuBuffer& send, const GpuBuffer& recv,
                    std::uint64_t timeout_ms, void* stream, Deadline deadline);
  // A plan that stays until it is let go; `key` names it.
  Result<GpuPlanKey> hold(const CollectiveCall& call, const GpuBuffer& send, const GpuBuffer& recv,
                          std::uint64_t timeout_ms, Deadline deadline);
  void let_go(const GpuPlanKey& key);
  Status start(const GpuPlanKey& key, void* stream, Deadline deadline);

  // Whether drop_plans_of(buffer) takes nothing from anybody: of the plans whose memory is there
  // none is under way, in a graph or held. False, too, where that is not known in time.
  bool may_drop_plans_of(BufferId buffer, const IsThere& is_there, Deadline deadline);
  // Asks that and drops them, with no start of another thread in between; false: it dropped none.
  Result<bool> drop_unneeded_plans_of(BufferId buffer, const IsThere& is_there, Deadline deadline);
  // Before the daemon forgets the buffer. The caller has seen to it that no start is under way.
  Status drop_plans_of(BufferId buffer, Deadline deadline);
  // Once the daemon has let the member go: its plans would hold their buffers until the session
  // ends.
  Status drop_plans(Deadline deadline);

  // Every start that waits, and every later one, ends with `why`. Once; the first `why` counts.
  void close(const Error& why);
  // What ended the communicator, as the GPU knows it; Ok while nothing did, or while the GPU does
  // not say in time.
  Error look() { return error_.look(); }

 private:
  Result<GpuPlan*> plan_for(const CollectiveCall& call, const GpuBuffer& send,
                            const GpuBuffer& recv, std::uint64_t timeout_ms, Deadline deadline);
  bool is_idle() const;

  Parts parts_;
  AsyncError error_;
  DeadlineMutex mutex_;
  StreamOrder order_;
  CallNotes notes_;
  PostedStarts starts_;
  GpuPlans plans_;
  std::unique_ptr<InStreamPath> in_stream_;  // null where every operation needs the daemon
};

}  // namespace arcomm::client
