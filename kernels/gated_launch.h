// Launching before the call: a gate, which is a kernel of one warp, waits in the stream for the
// client's word, and the operation behind it begins 1 us after that came. A stream that waits for a
// word by itself begins 9 us after it (both: H200, from the word's store to the first instruction).
//
// A gated operation gets its number on the device: one more than that of the last operation on this
// scratch that ended well, as its done word said. So a launch that is prepared once can be put into
// the stream any number of times.
#pragma once

#include <cstdint>
#include <utility>

#include "kernels/launch_cuda.h"
#include "proto/status.h"

namespace arcomm {

// Opens when *doorbell is the Doorbell (proto/device_mailbox.h) of this plan with the operation's
// number.
//
// Gates of a scratch are numbered 1, 2, 3 ... modulo 2^32, and open in that order; at most
// kMostGatesAhead may be there at a time. Even and odd ones take turns in two streams: what waits
// in one stream behind an operation begins microseconds after that has ended, and the next call
// does not wait for it. So a gate begins to wait while the operation before it runs.
//
// One that finds its number or a later one's at cancel_word() when its turn comes or while it waits
// for its call, or that has waited for longer than its lifetime by then, will not open. Between
// ranks it is all or nothing: where one rank's gate does not open, that rank ends at once and the
// others when their own gates let them go: no output touched, no done word, no outcome. Otherwise
// all run as if nothing had been said. Before a launch without a gate on this scratch all ranks'
// launches must have ended (a slow reader of one_shot_ll16's halves is not waited for).
struct CudaGate {
  const std::uint64_t* doorbell = nullptr;  // memory of the rank's GPU
  std::uint32_t plan = 0;
  std::uint32_t parity = 0;       // number modulo 2; one stream for each
  std::uint64_t lifetime_ns = 0;  // so that nothing outlives a process that is gone
};

inline constexpr std::uint32_t kMostGatesAhead = 16;
std::uint32_t* cancel_word(void* scratch);  // device memory

// `call` but for its numbers: done_word is not used.
Status launch_all_reduce_behind(const CudaGate& gate, CudaAlgorithm algorithm,
                                const CudaAllReduce& call, CudaShape shape, void* stream);
// Into the current device, as load_all_reduce_kernels().
Status load_gate_kernel();

// The same, made once: launching it takes the CPU 1.2 to 2.6 us instead of 5.6. Making it takes up
// to 100 us and memory of the GPU: like an allocation, not while a grid waits for somebody.
// For one stream, where it runs once at a time. Move-only owner; destroyed once what was launched
// has ended.
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
