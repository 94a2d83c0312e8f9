// What is put into the queues of one GPU to run in order: kernels, copies, and events, by which
// queues of all GPUs keep order with each other. Every call returns at once, whatever runs. Thread:
// the worker's.
#pragma once

#include <cstdint>

#include "kernels/all_reduce/combine.h"
#include "kernels/launch/launch_cuda.h"
#include "kernels/network/launch_network.h"
#include "proto/status.h"

namespace arcomm {

// A queue has three streams: its launches of either parity, and its copies. They go beside each
// other; in each, everything happens in order. Queue 0 has one stream of launches for both
// parities.
struct QueueStream {
  enum class Kind : std::uint8_t { Launches, Copies };
  std::uint32_t queue = 0;
  Kind kind = Kind::Launches;
  std::uint32_t parity = 0;  // of launches
};

// All that was in a stream when it was recorded; 0: nothing.
struct QueueEvent {
  std::uintptr_t id = 0;
};
inline constexpr std::uint32_t kQueueEvents = 128;

class GpuQueues {
 public:
  virtual ~GpuQueues() = default;

  // In order with what is launched there of the same parity: see GpuLauncher::launch_behind(). The
  // words and addresses of `call` stay valid until it has ended. An operation without elements ends
  // without the other ranks. Where one did not end well, what follows on its scratch ends at once
  // and tells the outcome of that first one.
  virtual Status launch(std::uint32_t queue, std::uint32_t parity, CudaAlgorithm algorithm,
                        const CudaAllReduce& call) = 0;
  // Serves until kQueueEvents more have been recorded in that queue.
  virtual Result<QueueEvent> record(QueueStream stream) = 0;
  // What comes behind it in the stream waits until all that is in the event has ended. The event
  // may be another GPU's.
  virtual Status wait(QueueStream stream, QueueEvent event) = 0;
  // In the queue's stream of copies. Addresses are as this GPU finds them, in the memory of any.
  virtual Status copy(std::uint32_t queue, void* to, const void* from, std::uint64_t bytes) = 0;
  // In order with what is launched there of the same parity. All of it is in this GPU's memory.
  virtual Status combine(std::uint32_t queue, std::uint32_t parity, const CombineCall& call) = 0;
  // A node's part of an operation between nodes, in order with what is launched there with parity
  // 0. After load_network().
  virtual Status launch_network(std::uint32_t, const NetworkLaunch&) {
    return error(ErrorCode::Unimplemented, Reason::Unsupported,
                 "these GPUs run no operations between nodes");
  }
};

}  // namespace arcomm
