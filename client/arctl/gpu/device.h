// What the benchmark and the self-test need of a GPU, with no CUDA type in it: memory, one stream,
// a clock on it, graphs, and copies to another GPU. Behind it is CUDA's driver, which is loaded at
// run time; tests put a fake in its place. Thread: the one that opened it. Ownership: memory is for
// the life of the device. What is put on the stream happens in order; wait() says whether it went
// well.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "client/arctl/bench/bench_case.h"
#include "proto/status.h"

namespace arcomm::arctl {

// What was captured from the stream. Goes before its device.
class GpuGraph {
 public:
  virtual ~GpuGraph() = default;
  virtual Status launch() = 0;  // on the device's stream
};

// Copies of a fixed size from memory of the GPU to memory of another one; both go with it.
class GpuPeerCopy {
 public:
  virtual ~GpuPeerCopy() = default;
  virtual Status enqueue() = 0;  // on the device's stream
};

class GpuDevice {
 public:
  enum class Mark : std::uint8_t { Begin, End };
  using Clock = std::chrono::steady_clock;

  virtual ~GpuDevice() = default;

  virtual std::string name() const = 0;
  virtual int driver_version() const = 0;  // of CUDA: 13000 is 13.0
  virtual void* stream() const = 0;        // a cudaStream_t

  virtual Result<std::byte*> allocate(std::uint64_t bytes) = 0;         // as cudaMalloc
  virtual Result<std::byte*> allocate_pinned(std::uint64_t bytes) = 0;  // host memory

  virtual Status fill(std::byte* to, unsigned char value, std::uint64_t bytes) = 0;
  // `from` may be any host memory, and stays as it is until the stream was waited for.
  virtual Status upload(std::byte* to, const std::byte* from, std::uint64_t bytes) = 0;
  virtual Status copy(std::byte* to, const std::byte* from, std::uint64_t bytes) = 0;
  virtual Status download(std::byte* to, const std::byte* from, std::uint64_t bytes) = 0;

  virtual Status record(Mark mark) = 0;
  // By the GPU's clock, from the last Begin to the last End. After wait().
  virtual Result<double> between_us() = 0;

  // `work` puts on the stream what the graph then holds; nothing of it runs.
  virtual Result<std::unique_ptr<GpuGraph>> capture(const std::function<Status()>& work) = 0;

  // Looks at the stream without a pause until all of it is done. DeadlineExceeded: it is not.
  virtual Status wait(Clock::time_point deadline) = 0;

  // Between this GPU and CUDA's number `other`. Unsupported where they do not reach each other.
  virtual Result<std::unique_ptr<GpuPeerCopy>> peer_copy(int other, std::uint64_t bytes) = 0;
};

// Asks CUDA's driver, and uses no GPU. An error says what is missing: CUDA in this build, the
// driver, or any GPU.
Result<GpusSeen> see_gpus();

// CUDA's number `ordinal`, its primary context current in the calling thread from then on. An error
// says what is missing: CUDA in this build, the driver, or a GPU of that number.
Result<std::unique_ptr<GpuDevice>> open_gpu(int ordinal);

}  // namespace arcomm::arctl
