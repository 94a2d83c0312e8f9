// One GPU as the data plane drives it: the resident grid, and the launcher for what it does not
// take. Interfaces, so that everything above them is tested without a GPU; open_gpu() is the
// build's own. Thread: the worker's.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>

#include "daemon/exec/gpu/hardware/gpu_queues.h"
#include "kernels/launch/gated_launch.h"
#include "kernels/launch/launch_cuda.h"
#include "kernels/lines/ll128_self_test.h"
#include "kernels/resident/grid.h"
#include "kernels/trial/flag_echo.h"
#include "kernels/trial/trial.h"
#include "proto/gpu/device_mailbox.h"
#include "proto/gpu/in_stream_call.h"
#include "proto/gpu/in_stream_images.h"
#include "proto/status.h"

namespace arcomm {

class Device;

// A launched kernel tells the worker through this how one rank's part ended. It is pinned host
// memory, at the same address for host and GPU, and is read without a call to the driver.
struct alignas(128) RankCompletion {
  std::uint64_t done = 0;    // CudaAllReduce::host_done
  CudaOutcome outcome = {};  // CudaAllReduce::host_outcome
  std::uint64_t wrong = 0;   // TrialCall::wrong
  HostDoorbells doorbells =
      {};  // InStreamCall::doorbells, of in-stream operations that the daemon runs itself
};

// What PreparedAllReduce is, for both parities of one queue.
class PreparedLaunch {
 public:
  virtual ~PreparedLaunch() = default;
  virtual Status launch(std::uint32_t parity) = 0;
};

class GpuLauncher : public GpuQueues {
 public:
  // Queues beside each other. Number 0 is for all; 1 and up to own_queues() are for one rank each,
  // and only there may something wait for a client. 0 where this GPU cannot keep such a wait apart
  // from the rest.
  virtual std::uint32_t own_queues() const = 0;
  // See gated_launch.h. The two parities run beside each other: a gate keeps order with the gates
  // before it, and with other launches of its own parity only. Refused without elements and to a
  // single rank, which would not wait. Whoever allocates or lets go of memory while a gate waits
  // may wait too.
  virtual Status launch_behind(std::uint32_t queue, const CudaGate& gate, CudaAlgorithm algorithm,
                               const CudaAllReduce& call) = 0;
  // For both parities, whichever is in `gate`.
  virtual Result<std::unique_ptr<PreparedLaunch>> prepare(std::uint32_t queue, const CudaGate& gate,
                                                          CudaAlgorithm algorithm,
                                                          const CudaAllReduce& call) = 0;
  // What clients run by themselves, for the tuner to measure: with parity 0.
  virtual Status launch_in_stream(std::uint32_t queue, const InStreamShape& shape, DType dtype,
                                  ReduceOp op, const InStreamCall& call) = 0;
  // A trial (kernels/trial/trial.h) of what is launched between the two, with parity 0.
  virtual Status fill_trial(std::uint32_t queue, const TrialCall& call) = 0;
  virtual Status check_trial(std::uint32_t queue, const TrialCall& call) = 0;
  // An echo of flags (kernels/trial/flag_echo.h) with parity 0, on words that one echo has at a
  // time: it ends by itself at its timeout, or once it is told to. The CPU's side of it is the
  // caller's.
  virtual Status launch_flag_echo(std::uint32_t queue, const FlagEchoCall& call) = 0;
  virtual FlagEchoWords& flag_echo_words() = 0;
  // What comes behind it with parity 0 waits until the word is `value`: for ever, if need be, as
  // abort() does not end it. Whoever allocates or lets go of memory meanwhile waits too.
  virtual Status wait_for(std::uint32_t queue, std::uint64_t* address, std::uint64_t value) = 0;
  // Has all of it ended, of both parities and the copies? Waits and gates are part of it.
  virtual Result<bool> idle(std::uint32_t queue) = 0;
  // Beside what was launched, which may be waiting: a word in the memory of this GPU, and the end
  // of whatever waits on the rank whose scratch this is. An aborted scratch serves no more.
  virtual Status store(std::uint64_t* address, std::uint64_t value) = 0;
  virtual Status abort(void* scratch) = 0;
  // Operations that a scratch takes until it is to start over: see start_over() of launch_cuda.h.
  // With parity 0.
  virtual std::uint32_t operations_of_scratch() const = 0;
  virtual Status start_over(std::uint32_t queue, void* scratch, std::uint32_t ranks) = 0;
  // That gate and those before it do not open any more: see CudaGate and cancel_word().
  virtual Status cancel(void* scratch, std::uint32_t number) = 0;
  // Waits until what went beside has happened.
  virtual Status flush(std::chrono::nanoseconds timeout) = 0;
  // Whether 128 bytes that a warp stores arrive whole at this GPU from each of the writers, which
  // are ordinals, while all of them store: the error says why not, or why nobody knows. `memory`:
  // kLl128TestBytes of this GPU for each. Blocks, for several times the timeout at worst; only
  // while nothing runs or waits on any of them.
  virtual Status try_atomic_128b_stores(std::span<const int> writers, void* memory,
                                        std::chrono::nanoseconds timeout) = 0;
  // The kernels of launch_network(), which waits for nothing from then on. Quiesced: the driver may
  // wait for what runs.
  virtual Status load_network() { return {}; }
  // The host's memory, which kernels on any GPU reach from then on, by the address that it has
  // here, for as long as the process runs. Quiesced: the driver waits for what runs.
  virtual Status pin(std::span<std::byte>) { return {}; }
  // An error that the GPU does not recover from, if it has one.
  virtual Status health() = 0;
  // One for each rank that is served here at a time.
  virtual std::span<RankCompletion> words() = 0;
};

struct GpuHardware {
  std::unique_ptr<ResidentGrid> grid;
  std::unique_ptr<GpuLauncher> launcher;
  std::uint64_t resident_scratch_bytes = 0;
  std::uint32_t sms = 0;  // streaming multiprocessors
  // What clients run by themselves, for any GPU; empty where there is nothing of the kind.
  InStreamImages in_stream_images;
  // So many operations went before in a new mailbox, by its words: none, but where a test has
  // numbers come round.
  std::uint32_t operations_before = 0;
};

using OpenGpu = std::function<Result<GpuHardware>(Device&)>;

// Slow: loads every kernel. Unimplemented in a build without CUDA.
Result<GpuHardware> open_gpu(Device& device);

}  // namespace arcomm
