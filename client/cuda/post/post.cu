// One operation, seen from the client's stream: ring, and stay until the daemon says done. One
// thread. Counters live in device memory, so a start that a graph replays is a new operation.
#include "client/cuda/post/post.h"
#include "client/cuda/post/ptx.cuh"
#include "proto/status.h"

namespace arcomm::client {
namespace {

using namespace device;  // NOLINT(google-build-using-namespace): the assembly of this very room

constexpr std::uint32_t kPollsBetweenLooks = 64;  // of `done`, before a look at the other words

enum class Wait { Arrived, Left };

__device__ void record_failure(const GpuPost& post, Done why) {
  atomicCAS(reinterpret_cast<unsigned long long*>(&post.mailbox->failed), 0ull,
            static_cast<unsigned long long>(to_word(why)));
}

// Whether no answer is to be expected any more; why is on record then. begin: of the wait; it
// starts with the first look, so that a wait that is soon over never asks for the time.
__device__ bool is_over(const GpuPost& post, std::uint32_t number, std::uint64_t& begin,
                        std::uint64_t timeout_ns) {
  if (const std::uint64_t closed = load_relaxed(&post.mailbox->closed); closed != 0) {
    record_failure(post, done_from(closed));
    return true;
  }
  if (load_relaxed(&post.mailbox->failed) != 0) return true;
  const std::uint64_t now = global_nanoseconds();
  if (begin == 0) begin = now;
  if (now - begin <= timeout_ns + kPostGraceNs) return false;
  record_failure(post, {.number = number,
                        .code = static_cast<std::uint8_t>(ErrorCode::DeadlineExceeded),
                        .reason = static_cast<std::uint8_t>(Reason::Timeout)});
  return true;
}

// Until the path's `done` has reached `number`, or the communicator is over.
__device__ Wait wait_for(const GpuPost& post, const MailboxPath& path, std::uint32_t number) {
  std::uint64_t begin = 0;
  for (std::uint32_t polls = 1;; ++polls) {
    const Done done = done_from(load_acquire(&path.done));
    if (done.code != 0) {  // of this start, or of one that all later ones fail with
      record_failure(post, done);
      return Wait::Left;
    }
    if (static_cast<std::int32_t>(done.number - number) >= 0) return Wait::Arrived;
    if (polls % kPollsBetweenLooks == 0 && is_over(post, number, begin, post.timeout_ns)) {
      return Wait::Left;
    }
  }
}

// Until the starts that were called before this one have taken their numbers. They are of this rank
// and on other streams, where the caller's own kernels may be ahead of them, which take what they
// take: a start that has begun has its own deadline, and when it gives up says so to all. The one
// here is far behind those, for starts that never begin because what is ahead of them waits for
// this one.
__device__ Wait wait_for_order(const GpuPost& post, const std::uint32_t* in_order) {
  std::uint64_t begin = 0;
  for (std::uint32_t polls = 1;; ++polls) {
    if (static_cast<std::int32_t>(load_acquire(in_order) - post.called_before) >= 0) {
      return Wait::Arrived;
    }
    if (polls % kPollsBetweenLooks == 0 &&
        is_over(post, 0, begin, kTimeoutsForOwnOrder * post.timeout_ns)) {
      return Wait::Left;
    }
  }
}

__device__ Wait run(const GpuPost& post) {
  MailboxPath& path = post.mailbox->paths[static_cast<std::uint32_t>(post.path)];
  std::uint32_t* const in_order = &post.notes->in_order[static_cast<std::uint32_t>(post.path)];
  const bool is_late =
      post.order == StartOrder::Taken && wait_for_order(post, in_order) == Wait::Left;
  // Three words travel while the counter does.
  const std::uint64_t failed = load_relaxed(&post.mailbox->failed);
  const std::uint64_t closed = load_relaxed(&post.mailbox->closed);
  const std::uint64_t before = load_relaxed(&path.done);
  const std::uint32_t number = atomicAdd(&path.posted, 1u) + 1;  // counted even when it is late
  // One operation of the path at a time.
  const bool is_free =
      before == to_word(Done{.number = number - 1}) || (number == 1 && before == 0);
  if (is_late || (!is_free && wait_for(post, path, number - 1) == Wait::Left)) return Wait::Left;
  if (failed != 0) return Wait::Left;
  if (closed != 0) {
    record_failure(post, done_from(closed));
    return Wait::Left;
  }
  const std::uint64_t doorbell =
      to_word(Doorbell{.number = number, .plan = post.plan, .identity = post.identity});
  // No fence: what the stream did before was made visible to all when those kernels ended, and this
  // one has written nothing that anybody reads behind the doorbell. (It would cost half a
  // microsecond.)
  switch (post.path) {
    case LaunchPath::Resident:
      store_relaxed(&path.doorbell, doorbell);
      store_relaxed(&post.doorbells->resident_posted, number);
      break;
    case LaunchPath::Launched:
      // A kernel that was launched speculatively waits at the first.
      store_relaxed(&path.doorbell, doorbell);
      store_relaxed(&post.doorbells->launched, doorbell);
      break;
    case LaunchPath::InStream:  // nobody posts these two
    case LaunchPath::Alone:
    case LaunchPath::InCall:
      break;
  }
  // While the daemon works: the path's turns make this the only start of the plan.
  auto* const note = reinterpret_cast<std::uint64_t*>(&post.notes->plans[post.plan]);
  const auto posted = static_cast<std::uint32_t>(load_relaxed(note));
  store_relaxed(note, std::uint64_t{number} << 32 | (posted + 1));
  if (post.order != StartOrder::AsItComes) atomicAdd(in_order, 1u);
  return wait_for(post, path, number);
}

}  // namespace

extern "C" __global__ void arcomm_post(const __grid_constant__ GpuPost post) {
  // And nobody behind it may begin before its end: a grid that waits keeps SMs from the
  // daemon's, for which this one waits.
  grid_dependency_wait();
  if (run(post) == Wait::Left) {
    atomicAdd(&post.notes->left_early[static_cast<std::uint32_t>(post.path)], 1u);
  }
}

extern "C" __global__ void arcomm_count(std::uint32_t* const __grid_constant__ left) {
  grid_dependency_wait();
  atomicAdd(left, 1u);
}

}  // namespace arcomm::client
