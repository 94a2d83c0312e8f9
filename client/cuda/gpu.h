// What the library needs of a GPU, with no CUDA type in it: one context of this process, the memory
// that it sees, and a kernel on the caller's stream. CUDA is looked for at run time, by
// load_gpus(); tests put a fake in its place. Thread: any. Every call makes the context current for
// itself and puts back the one that was; all but post() may be made while this or another thread
// captures a stream. Ownership: a Gpu lives as long as the process.
#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "client/cuda/post/memory_post.h"
#include "client/cuda/post/post.h"
#include "proto/gpu/in_stream_call.h"
#include "proto/memory_handle.h"
#include "proto/status.h"
#include "proto/unique_fd.h"

namespace arcomm::client {

// The allocation that an address lies in.
struct GpuRange {
  std::uintptr_t base = 0;
  std::uint64_t bytes = 0;
  std::uint64_t allocation = 0;  // unlike the base, never given out a second time
  int ordinal = -1;              // of the GPU whose memory it is
  // Mapped by the driver's virtual memory functions, not from cudaMalloc: the range is one mapping,
  // what lies around it may go on, and other memory may come to be mapped there.
  bool is_mapped = false;
};

// A piece of physical memory where it is mapped in this process. The memory stays, unmapped or not,
// and is told from any other, for as long as this lives.
class GpuChunk {
 public:
  virtual ~GpuChunk() = default;
  GpuChunk(const GpuChunk&) = delete;
  GpuChunk& operator=(const GpuChunk&) = delete;
  std::uintptr_t base() const { return base_; }
  std::uint64_t bytes() const { return bytes_; }
  std::uintptr_t end() const { return base_ + bytes_; }

 protected:
  GpuChunk(std::uintptr_t base, std::uint64_t bytes) : base_(base), bytes_(bytes) {}

 private:
  const std::uintptr_t base_;
  const std::uint64_t bytes_;
};

// By which another process gets at an allocation: a cudaIpcMemHandle_t.
using GpuIpcHandle = std::array<std::byte, 64>;

// Memory of another process or of the host, as this GPU sees it. The destructor ends that.
class GpuMapping {
 public:
  virtual ~GpuMapping() = default;
  GpuMapping(const GpuMapping&) = delete;
  GpuMapping& operator=(const GpuMapping&) = delete;
  void* address() const { return address_; }

 protected:
  GpuMapping() = default;
  void* address_ = nullptr;
};

// The in-stream kernels that one daemon has handed over. Lives as long as the process.
class InStreamKernels {
 public:
  virtual ~InStreamKernels() = default;
};

class Gpu {
 public:
  virtual ~Gpu() = default;

  virtual const std::string& uuid() const = 0;  // "GPU-..."
  virtual int ordinal() const = 0;              // CUDA's number of it, in this process

  // InvalidArgument for memory that is not a GPU's. Of another GPU's only the ordinal is told.
  virtual Result<GpuRange> range_of(const void* address) = 0;
  virtual Result<GpuIpcHandle> export_memory(const GpuRange& range) = 0;
  // The mapping that `address`, of a mapped range, lies in.
  virtual Result<std::unique_ptr<GpuChunk>> hold_chunk(const void* address) = 0;
  // Whether it is that memory, all of it, which is mapped at its place now.
  virtual bool is_in_place(const GpuChunk& chunk) = 0;
  // Unsupported, with what to do, where its maker did not mean it to be shared.
  virtual Result<MemoryChunk> export_chunk(const GpuChunk& chunk) = 0;
  // The descriptor stays the caller's.
  virtual Result<std::unique_ptr<GpuMapping>> import_memory(int fd, std::uint64_t bytes) = 0;
  virtual Result<std::unique_ptr<GpuMapping>> map_host(void* memory, std::size_t bytes) = 0;

  virtual Result<bool> is_capturing(void* stream) = 0;
  // Puts the post kernel on the stream and returns; null is the legacy default stream.
  virtual Status post(const GpuPost& post, void* stream) = 0;
  // The same by stream memory operations; not while the stream is captured.
  virtual Status post_by_memory(const MemoryPost& start, void* stream) = 0;

  // Once per daemon, whatever CUDA_MODULE_LOADING says, so that no launch ever loads: the kernels
  // that need no codec. image_fd: proto/gpu/in_stream_images.h; it stays the caller's.
  virtual Result<const InStreamKernels*> load_in_stream(int image_fd) = 0;
  // Those of a codec, too; at once where they are loaded. The first time takes a while, in which it
  // may wait for what this GPU runs.
  virtual Status load_codec(const InStreamKernels& kernels, Codec codec) = 0;
  // Puts one of them on the stream and returns. The call says which codec, which must be loaded.
  // waits_behind: until call.behind blocks have left.
  virtual Status launch_in_stream(const InStreamKernels& kernels, const InStreamShape& shape,
                                  DType dtype, ReduceOp op, const InStreamCall& call,
                                  bool waits_behind, void* stream) = 0;

  // Puts a copy within this GPU's memory on the stream and returns; once it is done *left is one
  // more. Null: not counted.
  virtual Status copy(void* to, const void* from, std::uint64_t bytes, std::uint32_t* left,
                      void* stream) = 0;

  // Copies up to kMailboxWithNotesBytes, on a stream of our own that no other work delays.
  virtual Status read(void* to, const void* from, std::size_t bytes,
                      std::chrono::nanoseconds timeout) = 0;
  virtual Status write(void* to, const void* from, std::size_t bytes,
                       std::chrono::nanoseconds timeout) = 0;
};

class Gpus {
 public:
  virtual ~Gpus() = default;
  // The context that is current on this thread; where there is none, the primary context of the GPU
  // with that UUID, or else of the first one.
  virtual Result<std::shared_ptr<Gpu>> current(const std::string& otherwise_uuid) = 0;
  // The UUIDs of those that this process can use; none where CUDA does not say.
  virtual std::vector<std::string> visible() = 0;
  // What of this process's environment keeps kernels that wait for other GPUs from its streams.
  virtual InStreamHindrance in_stream_hindrance() = 0;
};

inline constexpr const char* kCudaDriver = "libcuda.so.1";
// Once per process and name. Unsupported where the driver or this build's CUDA part is missing.
Result<Gpus*> load_gpus(const char* driver = kCudaDriver);

}  // namespace arcomm::client
