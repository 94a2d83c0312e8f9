// What a thread may spend on waiting for other ranks in one launch. Every wait in a kernel goes
// through one of these, so every wait has a deadline, notices an abort and says for whom it waited.
#pragma once

#include <cstdint>

namespace arcomm::device {

// What a rank that waits for another's result may spend beyond what a rank that waits for a part
// may. The other one waits for parts, gives up first, and so names the rank that did not come. 5 ms
// is ample for that, and little beside any deadline.
constexpr std::uint64_t kForResultsNs = 5'000'000;

// One thread's account of its waits: together they end at the operation's timeout. The clock starts
// with the first wait that is not over at once.
//
// Watch knows the timeout, what else may end a wait, and who is told: LaunchWatch (scratch.cuh) in
// kernels that the daemon launches, InStreamWatch (in_stream/block_epoch.cuh) in those of clients.
// Its goes_on(since, waited_for) is false when the thread is to give up, and has then told the
// reason; `since` is when the waits began, 0 before the first call, which sets it. grow() adds to
// the timeout.
template <typename Watch>
class WaitBudget {
 public:
  __device__ __forceinline__ explicit WaitBudget(Watch watch) : watch_(watch) {}

  __device__ __forceinline__ void grow(std::uint64_t more_ns) { watch_.grow(more_ns); }

  // Called after a look in vain; false: give up. A look around, clock included, costs as much as a
  // look at what is waited for, so only one call in 128 takes one.
  __device__ __forceinline__ bool goes_on(std::uint32_t waited_for) {
    return !is_due() || looks_around(waited_for);
  }
  // The two halves of goes_on(), for a warp: its lanes count together, and one of them looks
  // around.
  __device__ __forceinline__ bool is_due() { return (++looks_ & 127U) == 0; }
  __device__ __forceinline__ bool looks_around(std::uint32_t waited_for) {
    return watch_.goes_on(since_, waited_for);
  }

 private:
  Watch watch_;
  std::uint64_t since_ = 0;
  std::uint32_t looks_ = 0;
};

}  // namespace arcomm::device
