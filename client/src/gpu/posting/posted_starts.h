// A member's starts of operations that the daemon runs: put into the caller's stream, which posts
// them there and waits. Counts them by plan and by path; what the GPU has counted then says which
// have ended.
// Thread: its owner's lock, but for end(): any.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "client/cuda/gpu.h"
#include "client/src/gpu/call_notes.h"
#include "client/src/gpu/gpu_mailbox.h"
#include "client/src/gpu/gpu_plan_cache.h"
#include "client/src/gpu/posting/memory_starts.h"
#include "client/src/gpu/stream_order.h"
#include "proto/gpu/launch_table.h"
#include "proto/status.h"

namespace arcomm::client {

enum class PostMode {
  Kernel,  // "kernel", the default: a kernel of one thread, which polls
  Memory   // "memops": stream memory operations; no kernel of ours waits on the caller's stream
};

// $ARCOMM_POST. InvalidArgument for any other word.
Result<PostMode> post_mode_from_environment();

class PostedStarts {
 public:
  struct Parts {
    std::shared_ptr<Gpu> gpu;
    std::shared_ptr<GpuMailbox> mailbox;
    PostMode mode = PostMode::Kernel;
    // Of each path, by the mailbox's words: 0, as it is new, but where a test has numbers come
    // round.
    std::uint32_t starts_before = 0;
  };
  // order, notes: outlive this.
  PostedStarts(Parts parts, StreamOrder& order, CallNotes& notes);

  // Puts a start of the plan into the stream and returns.
  Status post(GpuPlan& plan, void* stream);

  // How far the starts had come a moment ago.
  class Progress {
   public:
    // Whether every start of the plan, other than graphs', has ended.
    bool has_ended(const GpuPlan& plan) const;

   private:
    friend class PostedStarts;
    explicit Progress(const std::vector<std::uint32_t>& by_plan);

    const std::vector<std::uint32_t>& by_plan_;
    std::vector<std::byte> words_;
  };
  // Blocks for a few words from the GPU. The starts outlive it.
  Result<Progress> progress() const;
  // Counts come round, so they do not tell.
  bool any_of(const GpuPlan& plan) const { return was_started_[plan.id.index]; }

  bool any() const { return has_started_; }
  // Whether all of them have ended, and the streams have left them behind.
  bool are_over(const MailboxCounts& now) const;
  // What waits by stream memory operations, and what will come to, is let go.
  void end();
  // All of them are over: nobody looks after their streams any more. Blocks for a look.
  void leave_streams();

 private:
  Status post_by_memory(const GpuPost& post, void* stream);

  const Parts parts_;
  StreamOrder& order_;
  CallNotes& notes_;
  const std::shared_ptr<MemoryStarts> by_memory_;  // null: PostMode::Kernel
  std::vector<std::uint32_t> by_plan_;             // by index, over all plans that had it
  std::vector<bool> was_started_;                  // the same
  std::uint32_t by_path_[kLaunchPaths] = {};
  bool has_started_ = false;
};

}  // namespace arcomm::client
