// Launching before the call: a gate, which is a kernel of one warp, waits in the stream for the
// client's word, and the operation behind it begins 1 us after the word. A stream that waits for a
// word by itself begins 9 us after it (both on H200, from the word's store to the first
// instruction).
//
// A gated operation gets its number on the device: one more than the number of the last operation
// on this scratch that ended well, as its done word says. So a launch that is prepared once can be
// put into the stream any number of times.
#pragma once

#include <cstdint>
#include <utility>

#include "kernels/launch/launch_cuda.h"
#include "proto/gpu/captured_identity.h"
#include "proto/status.h"

namespace arcomm {

// Opens when *doorbell is the Doorbell (proto/gpu/device_mailbox.h) of this plan and identity with
// the operation's number.
//
// Gates of a scratch are numbered 1, 2, 3 ... modulo 2^32, and open in that order; at most
// kMostGatesAhead may exist at a time. Even and odd gates alternate between two streams: what waits
// in one stream behind an operation begins microseconds after that operation has ended, and the
// next call must not wait for that. In the other stream a gate begins to wait while the operation
// before it runs.
//
// A gate does not open if it finds its number or a later one at cancel_word(), when its turn comes
// or while it waits for its call, or if it has waited for longer than its lifetime by then. Between
// ranks it is all or nothing. Where one rank's gate does not open, that rank ends at once and the
// others end when their own gates let them go, with no output touched, no done word and no outcome.
// Otherwise all run as if nothing had been said. Before a launch without a gate on this scratch,
// all ranks' launches must have ended (such a launch does not wait for a slow reader of
// one_shot_ll16's halves).
struct CudaGate {
  const std::uint64_t* doorbell = nullptr;  // memory of the rank's GPU
  std::uint32_t plan = 0;
  std::uint32_t identity = kNoIdentity;
  std::uint32_t parity = 0;       // number modulo 2; one stream for each
  std::uint64_t lifetime_ns = 0;  // a gate must not outlive the process that would open it
};

inline constexpr std::uint32_t kMostGatesAhead = 16;
std::uint32_t* cancel_word(void* scratch);  // device memory

// Launches `call` behind a gate. call.done_word is not used: the number is given out on the device.
Status launch_all_reduce_behind(const CudaGate& gate, CudaAlgorithm algorithm,
                                const CudaAllReduce& call, CudaShape shape, void* stream);
// Into the current device, as load_all_reduce_kernels().
Status load_gate_kernel();

// The same launch, made once: launching it takes the CPU 1.2 to 2.6 us instead of 5.6. Making it
// takes up to 100 us and memory of the GPU, so like an allocation it must not happen while a grid
// waits for somebody. For one stream, where it runs once at a time. Move-only owner; destroyed once
// what was launched has ended.
class PreparedAllReduce {
 public:
  static Result<PreparedAllReduce> create(const CudaGate& gate, CudaAlgorithm algorithm,
                                          const CudaAllReduce& call, CudaShape shape, void* stream);

  PreparedAllReduce() = default;
  ~PreparedAllReduce();
  PreparedAllReduce(PreparedAllReduce&& other) noexcept
      : ordinal_(other.ordinal_), graph_(std::exchange(other.graph_, nullptr)) {}
  PreparedAllReduce& operator=(PreparedAllReduce&& other) noexcept {
    std::swap(ordinal_, other.ordinal_);
    std::swap(graph_, other.graph_);
    return *this;
  }

  Status launch(void* stream) const;

 private:
  PreparedAllReduce(int ordinal, void* graph) : ordinal_(ordinal), graph_(graph) {}
  int ordinal_ = -1;
  void* graph_ = nullptr;  // a cudaGraphExec_t
};

}  // namespace arcomm
