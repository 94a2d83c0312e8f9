// GPUs of plain host memory, which hold the data plane to their rules: nothing is allocated, grown
// or let go of while a grid runs, a launch waits or a kernel is at work in it. Thread: the
// worker's, except for the atomics of the node.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <utility>

#include "tests/unit/daemon/exec/gpu/fakes/fake_grid.h"
#include "tests/unit/daemon/exec/gpu/fakes/fake_node.h"
#include "tests/unit/daemon/exec/gpu/fakes/sparse_memory.h"
#include "transport/device/device.h"

namespace arcomm::test {

class FakeMemory final : public Memory::Backing {
 public:
  // bytes: that are there, of what it may grow to.
  FakeMemory(FakeNode& node, Memory memory, std::uint64_t bytes, int home)
      : node_(node), memory_(std::move(memory)), bytes_(bytes), first_bytes_(bytes), home_(home) {
    ++node_.memories;
    node_.ranges[memory_.data()] = {memory_.bytes(), home_};
    note();
  }
  ~FakeMemory() override {
    EXPECT_EQ(node_.running_grids, 0) << "memory was let go while a grid ran";
    EXPECT_EQ(node_.gated, 0) << "memory was let go while a launch waited for a client";
    EXPECT_EQ(node_.network_running, 0) << "memory was let go while a kernel waited for a peer";
    EXPECT_FALSE(is_used()) << "memory was let go while a kernel was at work in it";
    EXPECT_TRUE(
        node_.echoes == 0 && !node_.is_clearing() &&
        std::ranges::all_of(node_.grids, [](const FakeGrid* grid) { return grid->is_idle(); }))
        << "the driver waits here for a launch that finds no room, as long as others fill the GPU";
    // Freshly mapped memory may lie where it lay.
    node_.scratches.erase(memory_.data());
    node_.in_stream_pushes.erase(memory_.data());
    node_.ranges.erase(memory_.data());
    node_.there.erase(memory_.data());
    node_.allocated[home_] -= bytes_;
    --node_.memories;
  }
  MemoryRef view() const override { return {memory_.data(), bytes_}; }
  std::byte* data_on(int ordinal) const override {
    return as_found(memory_.data(), home_, ordinal);
  }
  Result<UniqueFd> export_fd() const override { return memory_.export_fd(); }
  Status grow(std::uint64_t bytes) override {
    EXPECT_EQ(node_.running_grids, 0) << "memory grew while a grid ran";
    EXPECT_EQ(node_.gated, 0) << "memory grew while a launch waited for a client";
    EXPECT_EQ(node_.network_running, 0) << "memory grew while a kernel waited for a peer";
    EXPECT_LE(bytes, memory_.bytes()) << "no addresses are there for more";
    if (home_ == node_.refuses_growth)
      return error(ErrorCode::ResourceExhausted, Reason::OutOfMemory, "no ", bytes, " bytes");
    node_.allocated[home_] -= bytes_;
    bytes_ = bytes;
    note();
    return {};
  }
  void cut_back() override {
    EXPECT_FALSE(is_used()) << "memory was let go while a kernel was at work in it";
    node_.allocated[home_] -= bytes_;
    bytes_ = first_bytes_;
    note();
  }

 private:
  void note() {
    node_.allocated[home_] += bytes_;
    node_.there[memory_.data()] = bytes_;
  }
  // By what has been launched and has not ended, wherever it finds it.
  bool is_used() const {
    const auto is_here = [this](const void* address) {
      for (int ordinal = 0; ordinal < kGpus; ++ordinal) {
        const std::byte* const base = as_found(memory_.data(), home_, ordinal);
        if (address >= base && address < base + memory_.bytes()) return true;
      }
      return false;
    };
    return std::ranges::any_of(node_.launches, [&](const FakeLaunch& one) {
      return std::ranges::any_of(one.call.send, is_here) ||
             std::ranges::any_of(one.call.recv, is_here) ||
             std::ranges::any_of(one.call.scratch, is_here);
    });
  }

  static constexpr int kGpus = 3;
  FakeNode& node_;
  Memory memory_;
  std::uint64_t bytes_;
  const std::uint64_t first_bytes_;
  int home_;
};

class FakeGpu final : public Device {
 public:
  FakeGpu(FakeNode& node, int ordinal) : node_(node), ordinal_(ordinal) {}
  DeviceKind kind() const override { return DeviceKind::Cuda; }
  int ordinal() const override { return ordinal_; }
  std::string name() const override { return "GPU-" + std::to_string(ordinal_); }
  Result<Memory> allocate(std::uint64_t bytes) override { return allocate_growing(bytes, bytes); }
  Result<Memory> allocate_growing(std::uint64_t bytes, std::uint64_t most_bytes) override {
    EXPECT_EQ(node_.running_grids, 0) << "memory was allocated while a grid ran";
    EXPECT_EQ(node_.gated, 0) << "memory was allocated while a launch waited for a client";
    EXPECT_EQ(node_.network_running, 0) << "memory was allocated while a kernel waited for a peer";
    if (node_.full) node_.tried_to_clear = true;
    if (node_.allocation_ms != 0)
      std::this_thread::sleep_for(std::chrono::milliseconds(node_.allocation_ms));
    if (bytes > node_.most_bytes)
      return error(ErrorCode::ResourceExhausted, Reason::OutOfMemory, "no ", bytes, " bytes");
    Result<Memory> memory = SparseMemory::create(most_bytes);
    if (!memory) return memory;
    return Memory(std::make_unique<FakeMemory>(node_, std::move(memory).value(), bytes, ordinal_));
  }
  Result<Memory> allocate_for(const std::shared_ptr<const void>& token,
                              std::uint64_t bytes) override {
    const auto kept = std::ranges::find_if(
        abandoned_, [&](const Kept& one) { return token != nullptr && one.token.lock() == token; });
    Result<Memory> memory = kept == abandoned_.end() ? allocate(bytes) : std::move(kept->memory);
    if (!memory) return memory;
    if (kept != abandoned_.end()) abandoned_.erase(kept);
    memory->keep(token);
    if (!node_.clears_late) return memory;
    abandoned_.push_back({std::move(*memory), token});
    return error(ErrorCode::Unavailable, Reason::None, bytes, " bytes could not be cleared");
  }
  bool keeps_uncleared() const override { return !abandoned_.empty(); }
  // Where its room is needed at once, and else when it pleases the device, as it does at once, too.
  std::vector<Memory> take_abandoned(bool is_needed) override {
    if (is_needed && node_.late_looks != 0 && --node_.late_looks == 0) node_.clears_late = false;
    std::vector<Memory> gone;
    if (node_.clears_late) return gone;
    std::erase_if(abandoned_, [&](Kept& one) {
      if (one.token.use_count() > 1) return false;  // somebody waits for it
      gone.push_back(std::move(one.memory));
      return true;
    });
    return gone;
  }
  bool is_clearing() const override { return node_.is_clearing(); }
  Status import(const MemoryHandle& handle, int, Memory& memory) override {
    return import(handle.length_bytes, memory);
  }
  Status import_chunks(std::span<const MemoryChunk> chunks, std::uint64_t,
                       std::uint64_t length_bytes, Memory& memory) override {
    node_.imported_chunks += chunks.size();
    return import(length_bytes, memory);
  }

 private:
  Status import(std::uint64_t bytes, Memory& memory) {
    Result<Memory> mapped = allocate(bytes);
    if (!mapped) return std::move(mapped).error();
    memory = std::move(*mapped);
    if (!node_.imports_fail) return {};
    return error(ErrorCode::InvalidArgument, Reason::BadValue, "less was there than was said");
  }

  struct Kept {
    Memory memory;
    std::weak_ptr<const void> token;  // the memory's
  };

  FakeNode& node_;
  int ordinal_;
  std::vector<Kept> abandoned_;
};

}  // namespace arcomm::test
