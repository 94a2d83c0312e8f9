// One rank of a communicator on a GPU, in one epoch: its mailbox, its plans, and the starts that
// its streams carry to the daemon.
// Thread: any; one lock, under which the daemon may be asked for a plan. Ownership: the Member.
// What a graph or a stream may still run keeps its mapping: see the destructor.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "client/cuda/gpu.h"
#include "client/src/control/node_control.h"
#include "client/src/gpu/gpu_mailbox.h"
#include "client/src/gpu/gpu_plan_cache.h"
#include "client/src/gpu/in_stream/gpu_exchange.h"
#include "client/src/gpu/in_stream/in_stream_path.h"
#include "client/src/gpu/memory/gpu_buffer.h"
#include "client/src/gpu/memory/memory_starts.h"
#include "client/src/gpu/post_mode.h"
#include "client/src/host/operation.h"
#include "client/src/session/deadline.h"
#include "client/src/session/deadline_mutex.h"
#include "proto/launch_table.h"
#include "proto/status.h"

namespace arcomm::client {

class GpuMember {
 public:
  struct Daemon {
    std::function<Result<PlanId>(const NewPlan&, Deadline)> create_plan;
    std::function<Status(PlanId, Deadline)> destroy_plan;
  };
  struct Parts {
    std::shared_ptr<Gpu> gpu;
    std::shared_ptr<GpuMailbox> mailbox;
    std::shared_ptr<GpuExchange> exchange;  // null: `launches` has nothing in-stream
    LaunchTable launches;
    PostMode post = PostMode::Kernel;
    MemberId member;
    std::uint32_t rank = 0, ranks = 0;
    Daemon daemon;
  };
  explicit GpuMember(Parts parts);
  // Unmaps the mailbox when no start can be under way and no graph holds one; otherwise it stays
  // mapped, closed, until the process ends.
  ~GpuMember();
  GpuMember(const GpuMember&) = delete;
  GpuMember& operator=(const GpuMember&) = delete;

  Gpu& gpu() const { return *parts_.gpu; }

  // Which way the daemon wants it to take.
  Launch launch_of(const CollectiveCall& call) const {
    return parts_.launches.find(launch_key_of(call));
  }
  // What is in-stream: puts it on the stream and returns; no daemon has to know of it, nor of its
  // memory. check_in_stream: the same without the start.
  Status all_reduce_in_stream(const CollectiveCall& call, const InStreamShape& shape,
                              std::uint64_t timeout_ms, void* stream, Deadline deadline);
  Status check_in_stream(const CollectiveCall& call) { return in_stream_->check_memory(call); }

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
  Error look();

 private:
  void await_verdict(DeviceMailbox& now) const;
  Result<GpuPlan*> plan_for(const CollectiveCall& call, const GpuBuffer& send,
                            const GpuBuffer& recv, std::uint64_t timeout_ms, Deadline deadline);
  Status make_room(Deadline deadline);
  Result<bool> drop_oldest(Deadline deadline);
  bool nobody_needs_plans_of(BufferId buffer, const IsThere& is_there);
  Status drop(const std::vector<GpuPlan*>& plans, Deadline deadline);
  Status drop(GpuPlan& plan, Deadline deadline);
  Status post(GpuPlan& plan, void* stream);
  Status post_by_memory(const GpuPost& post, void* stream);
  // Before a start that no graph captures.
  void note_stream(void* stream);
  Status usable() const;
  bool is_idle();
  std::uint32_t in_stream_blocks() const {
    return in_stream_ == nullptr ? 0 : in_stream_->blocks();
  }

  Parts parts_;
  std::unique_ptr<InStreamPath> in_stream_;  // null without an exchange
  std::shared_ptr<MemoryStarts> starts_;     // null unless they are made by memory operations
  DeadlineMutex mutex_;
  GpuPlanCache plans_;
  std::vector<std::uint32_t> launched_;  // by plan index, over all plans that had it
  std::uint32_t launched_on_path_[kLaunchPaths] = {};
  bool was_captured_ = false;
  void* last_stream_ = nullptr;  // compared, never used: it may be gone
  bool has_several_streams_ = false;
  std::atomic<bool> is_over_{false};
  mutable std::mutex over_mutex_;
  std::optional<Error> over_;  // why
  bool is_closed_ = false;     // the GPU was told
};

}  // namespace arcomm::client
