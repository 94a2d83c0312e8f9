// A GPU for tests, in host memory: allocations that the test makes and frees, words that both ends
// see at once, and starts that are written down instead of run. Not for several threads, but for
// the words: read(), write() and ring().
#pragma once

#include <sys/mman.h>

#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "client/cuda/gpu.h"

namespace arcomm::client {

class FakeMapping final : public GpuMapping {
 public:
  FakeMapping(void* address, std::size_t unmapped_bytes, int* open)
      : unmapped_bytes_(unmapped_bytes), open_(open) {
    address_ = address;
    ++*open_;
  }
  ~FakeMapping() override {
    if (unmapped_bytes_ != 0) ::munmap(address_, unmapped_bytes_);
    --*open_;
  }

 private:
  const std::size_t unmapped_bytes_;
  int* const open_;
};

class FakeChunk final : public GpuChunk {
 public:
  FakeChunk(std::uintptr_t base, std::uint64_t bytes, std::uint64_t which, int* held)
      : GpuChunk(base, bytes), memory(which), held_(held) {
    ++*held_;
  }
  ~FakeChunk() override { --*held_; }
  const std::uint64_t memory;  // its number

 private:
  int* const held_;
};

class FakeGpu final : public Gpu {
 public:
  struct Start {
    GpuPost post;
    void* stream = nullptr;
  };

  struct MemoryStart {
    MemoryPost start;
    void* stream = nullptr;
  };

  struct InStreamStart {
    InStreamCall call;
    InStreamShape shape;
    void* stream = nullptr;
    bool waits_behind = false;
  };

  struct Copy {
    void* to;
    const void* from;
    std::uint64_t bytes;
    std::uint32_t* left;
    void* stream;
  };

  // What is at `base` from now on; an id of 0 frees it.
  void place(std::uintptr_t base, std::uint64_t bytes, std::uint64_t id, int on = 0) {
    allocations.erase(base);
    if (id != 0) allocations[base] = {base, bytes, id, on};
  }

  // The same of physical memory, whose number comes again where the same memory does.
  void map(std::uintptr_t base, std::uint64_t bytes, std::uint64_t memory, int on = 0) {
    place(base, bytes, memory, on);
    if (memory != 0) allocations[base].is_mapped = true;
  }

  const std::string& uuid() const override { return uuid_; }
  int ordinal() const override { return number; }
  Result<GpuRange> range_of(const void* address) override {
    ++questions;
    const auto where = reinterpret_cast<std::uintptr_t>(address);
    auto found = allocations.upper_bound(where);
    if (found != allocations.begin() && where - (--found)->first < found->second.bytes) {
      if (found->second.ordinal == number) return found->second;
      return GpuRange{.base = where, .bytes = 0, .ordinal = found->second.ordinal};
    }
    return error(ErrorCode::InvalidArgument, Reason::BadValue, "device pointer expected");
  }
  Result<GpuIpcHandle> export_memory(const GpuRange&) override { return GpuIpcHandle{}; }
  Result<std::unique_ptr<GpuChunk>> hold_chunk(const void* address) override {
    const Result<GpuRange> range = range_of(address);
    if (!range) return range.error();
    return std::unique_ptr<GpuChunk>(
        new FakeChunk(range->base, range->bytes, range->allocation, &held_chunks));
  }
  bool is_in_place(const GpuChunk& chunk) override {
    ++looks_at_chunks;
    const auto now = allocations.find(chunk.base());
    return now != allocations.end() && now->second.bytes == chunk.bytes() &&
           now->second.allocation == static_cast<const FakeChunk&>(chunk).memory;
  }
  Result<MemoryChunk> export_chunk(const GpuChunk& chunk) override {
    if (static_cast<const FakeChunk&>(chunk).memory == unshared)
      return error(ErrorCode::FailedPrecondition, Reason::Unsupported, "made without a descriptor");
    return MemoryChunk{.memory = UniqueFd(::memfd_create("chunk", MFD_CLOEXEC)),
                       .bytes = chunk.bytes()};
  }
  Result<std::unique_ptr<GpuMapping>> import_memory(int fd, std::uint64_t bytes) override {
    void* const pages = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (pages == MAP_FAILED) return error(ErrorCode::Internal, Reason::Bug, "mmap");
    return std::unique_ptr<GpuMapping>(new FakeMapping(pages, bytes, &open_mappings));
  }
  Result<std::unique_ptr<GpuMapping>> map_host(void* memory, std::size_t) override {
    return std::unique_ptr<GpuMapping>(new FakeMapping(memory, 0, &open_mappings));
  }
  Result<bool> is_capturing(void*) override { return capturing; }
  Status post(const GpuPost& post, void* stream) override {
    starts.push_back({post, stream});
    return {};
  }
  Status post_by_memory(const MemoryPost& start, void* stream) override {
    memory_starts.push_back({start, stream});
    return {};
  }
  Result<const InStreamKernels*> load_in_stream(int) override { return &kernels_; }
  Status load_codec(const InStreamKernels&, Codec codec) override {
    codecs.push_back(codec);
    return codec == unloadable
               ? Status(error(ErrorCode::Internal, Reason::Version, "there is no such image"))
               : Status();
  }
  Status launch_in_stream(const InStreamKernels&, const InStreamShape& shape, DType, ReduceOp,
                          const InStreamCall& call, bool waits_behind, void* stream) override {
    in_stream_starts.push_back({call, shape, stream, waits_behind});
    return {};
  }
  Status copy(void* to, const void* from, std::uint64_t bytes, std::uint32_t* left,
              void* stream) override {
    copies.push_back({to, from, bytes, left, stream});
    return {};
  }
  Status read(void* to, const void* from, std::size_t bytes, std::chrono::nanoseconds) override {
    if (before_read) before_read();
    const std::lock_guard lock(words_);
    if (stuck) return late();
    std::memcpy(to, from, bytes);
    return {};
  }
  Status write(void* to, const void* from, std::size_t bytes, std::chrono::nanoseconds) override {
    const std::lock_guard lock(words_);
    if (stuck || refuses_writes) return late();
    std::memcpy(to, from, bytes);
    return {};
  }

  // What the kernel of `start` does until the daemon has answered, in the order of the calls.
  static void run(const Start& start) {
    MailboxPath& path = start.post.mailbox->paths[static_cast<std::uint32_t>(start.post.path)];
    PlanNote& note = start.post.notes->plans[start.post.plan];
    note = {.posted = note.posted + 1, .number = ++path.posted};
    path.done = to_word(Done{.number = path.posted});
  }

  // What the stream does until it waits.
  void ring(const MemoryStart& made) {
    const std::lock_guard lock(words_);
    const GpuPost& post = made.start.post;
    MailboxPath& path = post.mailbox->paths[static_cast<std::uint32_t>(post.path)];
    path.posted = made.start.number;
    path.doorbell = to_word(Doorbell{.number = made.start.number, .plan = post.plan});
    post.notes->plans[post.plan] = made.start.note;
  }

  // And once it has been answered, or let go.
  void pass(const MemoryStart& made) {
    const std::lock_guard lock(words_);
    const GpuPost& post = made.start.post;
    post.notes->passed[static_cast<std::uint32_t>(post.path)] = made.start.number;
  }

  // What the blocks of an in-stream operation do when all ranks have come.
  static void run(const InStreamStart& start) {
    if (start.call.left != nullptr) *start.call.left += start.shape.blocks;
  }

  std::map<std::uintptr_t, GpuRange> allocations;
  int number = 0;  // its ordinal
  std::vector<Start> starts;
  std::vector<MemoryStart> memory_starts;
  std::vector<InStreamStart> in_stream_starts;
  std::vector<Copy> copies;
  std::vector<Codec> codecs;  // that were loaded
  Codec unloadable = Codec::None;
  bool capturing = false;
  bool stuck = false, refuses_writes = false;
  std::function<void()> before_read = nullptr;
  int open_mappings = 0;
  int held_chunks = 0;
  int looks_at_chunks = 0;
  int questions = 0;           // what range_of() was asked
  std::uint64_t unshared = 0;  // the number of memory that cannot be exported

 private:
  static Error late() { return error(ErrorCode::DeadlineExceeded, Reason::Timeout, "stuck"); }
  std::mutex words_;
  const InStreamKernels kernels_{};
  const std::string uuid_ = "GPU-00000000-0000-0000-0000-000000000001";
};

}  // namespace arcomm::client
