// GPUs of plain host memory: a resident grid and a launcher that sum float32 where the real ones
// run kernels, and that hold the data plane to their rules (no allocation while a grid runs).
// Thread: the worker's, except for the atomics of the node.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tests/unit/daemon/exec/gpu/fake_grid.h"
#include "tests/unit/daemon/exec/worker/fake_node.h"
#include "transport/device/host_device.h"

namespace arcomm::test {

class FakeMemory final : public Memory::Backing {
 public:
  FakeMemory(FakeNode& node, Memory memory, int home)
      : node_(node), memory_(std::move(memory)), home_(home) {
    ++node_.memories;
  }
  ~FakeMemory() override {
    EXPECT_EQ(node_.running_grids, 0) << "memory was let go while a grid ran";
    EXPECT_EQ(node_.gated, 0) << "memory was let go while a launch waited for a client";
    // Freshly mapped scratch may lie where it lay.
    node_.scratches.erase(memory_.data());
    --node_.memories;
  }
  MemoryRef view() const override { return memory_.view(); }
  std::byte* data_on(int ordinal) const override {
    return as_found(memory_.data(), home_, ordinal);
  }
  Result<UniqueFd> export_fd() const override { return memory_.export_fd(); }

 private:
  FakeNode& node_;
  Memory memory_;
  int home_;
};

class FakeGpu final : public Device {
 public:
  FakeGpu(FakeNode& node, int ordinal) : node_(node), ordinal_(ordinal) {
    host_ = HostDevice::create({}).value();
  }
  DeviceKind kind() const override { return DeviceKind::Cuda; }
  int ordinal() const override { return ordinal_; }
  std::string name() const override { return "GPU-" + std::to_string(ordinal_); }
  Result<Memory> allocate(std::uint64_t bytes) override {
    EXPECT_EQ(node_.running_grids, 0) << "memory was allocated while a grid ran";
    EXPECT_EQ(node_.gated, 0) << "memory was allocated while a launch waited for a client";
    if (bytes > node_.most_bytes)
      return error(ErrorCode::ResourceExhausted, Reason::OutOfMemory, "no ", bytes, " bytes");
    // Scratch is large, and nobody here looks at it.
    Result<Memory> memory = host_->allocate(std::min<std::uint64_t>(bytes, 4 << 20));
    if (!memory) return memory;
    return Memory(std::make_unique<FakeMemory>(node_, std::move(memory).value(), ordinal_));
  }
  Result<Memory> import(const MemoryHandle& handle, int) override {
    return allocate(handle.length_bytes);
  }
  Result<Memory> import_chunks(std::span<const MemoryChunk> chunks, std::uint64_t,
                               std::uint64_t length_bytes) override {
    node_.imported_chunks += chunks.size();
    return allocate(length_bytes);
  }

 private:
  FakeNode& node_;
  int ordinal_;
  std::unique_ptr<HostDevice> host_;
};

// The ranks' launches of one operation run when the last of them has begun. GPUs get on whenever a
// launcher is looked at.
class FakeLauncher final : public GpuLauncher {
 public:
  FakeLauncher(FakeNode& node, int ordinal) : node_(node), ordinal_(ordinal), words_(16) {}

  std::uint32_t own_queues() const override { return 4; }
  Status launch(std::uint32_t queue, std::uint32_t parity, CudaAlgorithm algorithm,
                const CudaAllReduce& call) override {
    EXPECT_FALSE(entry_of(algorithm).launches_all_ranks && call.count != 0);
    return put(queue, parity, algorithm, call);
  }
  Status put(std::uint32_t queue, std::uint32_t parity, CudaAlgorithm algorithm,
             const CudaAllReduce& call) {
    ARC_RETURN_IF_ERROR(can_launch(algorithm, call));
    node_.launches.push_back({.launcher = this,
                              .queue = queue,
                              .parity = queue == 0 ? 0 : parity,
                              .algorithm = algorithm,
                              .call = call});
    node_.advance();
    return {};
  }
  Status launch_together(std::span<const JointPart> parts, std::uint32_t parity,
                         CudaAlgorithm algorithm) override {
    EXPECT_TRUE(entry_of(algorithm).launches_all_ranks);
    if (node_.joint_fails)
      return error(ErrorCode::Internal, Reason::None, "the copy engines are on strike");
    ++node_.joint;
    for (const JointPart& part : parts) {
      auto& launcher = static_cast<FakeLauncher&>(*part.launcher);
      ARC_RETURN_IF_ERROR(launcher.put(part.queue, parity, algorithm, *part.call));
    }
    return {};
  }
  Status launch_behind(std::uint32_t queue, const CudaGate& gate, CudaAlgorithm algorithm,
                       const CudaAllReduce& call) override {
    EXPECT_FALSE(entry_of(algorithm).launches_all_ranks);
    ARC_RETURN_IF_ERROR(can_launch(algorithm, call));
    EXPECT_NE(queue, 0u) << "others' work is queued there";
    if (call.count == 0 || call.ranks < 2) {
      return error(ErrorCode::InvalidArgument, Reason::BadValue, call.count, " elements of ",
                   call.ranks, " ranks do not wait for their call");
    }
    node_.launches.push_back({.launcher = this,
                              .queue = queue,
                              .parity = gate.parity,
                              .algorithm = algorithm,
                              .call = call,
                              .gate = gate});
    node_.advance();
    return {};
  }
  Result<std::unique_ptr<PreparedLaunch>> prepare(std::uint32_t queue, const CudaGate& gate,
                                                  CudaAlgorithm algorithm,
                                                  const CudaAllReduce& call) override;
  // Done as soon as it is launched, as nobody looks at its sums.
  Status launch_in_stream(std::uint32_t, const InStreamShape& shape, DType dtype, ReduceOp op,
                          const InStreamCall& call) override {
    EXPECT_NE(shape.blocks, 0u);
    EXPECT_TRUE(has_in_stream_kernel(dtype)) << op;
    for (std::uint32_t rank = 0; rank < call.ranks; ++rank) EXPECT_NE(call.exchange[rank], nullptr);
    ++node_.in_stream;
    if (!node_.in_stream_fails) return {};
    const Done why{.number = 1,
                   .code = static_cast<std::uint8_t>(ErrorCode::DeadlineExceeded),
                   .reason = static_cast<std::uint8_t>(Reason::Timeout),
                   .culprit_rank = 1};
    store_word(call.doorbells->in_stream_failed, to_word(why));
    return {};
  }
  Status wait_for(std::uint32_t queue, std::uint64_t* address, std::uint64_t value) override {
    EXPECT_NE(queue, 0u) << "others' work is queued there";
    EXPECT_NE(load_word(*address), value) << "nothing is held back";
    node_.launches.push_back({.launcher = this, .queue = queue, .word = address, .value = value});
    node_.advance();
    return {};
  }
  Result<bool> idle(std::uint32_t queue) override {
    node_.advance();
    if (node_.queues_stay_busy) return false;
    return std::none_of(node_.launches.begin(), node_.launches.end(), [&](const auto& one) {
      return one.launcher == this && one.queue == queue;
    });
  }
  Status store(std::uint64_t* address, std::uint64_t value) override {
    store_word(*address, value);
    node_.advance();
    return {};
  }
  Status abort(void* scratch) override {
    ++node_.aborts;
    node_.abort(scratch);
    return {};
  }
  Status cancel(void* scratch, std::uint32_t number) override {
    node_.advance();  // whatever was called before has begun
    node_.scratches[scratch].cancelled = number;
    node_.advance();
    return {};
  }
  Status flush(std::chrono::nanoseconds) override { return health(); }
  Status try_atomic_128b_stores(int reader, void* memory, std::chrono::nanoseconds) override {
    EXPECT_EQ(node_.running_grids, 0) << "lines were tried while a grid ran";
    std::memset(memory, 0xff, kLl128TestBytes);
    if (!node_.torn.contains({ordinal_, reader})) return {};
    return error(ErrorCode::Unavailable, Reason::Unsupported, "7 of 20000 were torn");
  }
  Status health() override {
    if (!node_.sick) return {};
    return error(ErrorCode::Internal, Reason::None, "an illegal memory access was encountered");
  }
  std::span<RankCompletion> words() override {
    node_.advance();
    return words_;
  }

 private:
  FakeNode& node_;
  int ordinal_;
  std::vector<RankCompletion> words_;
};

class FakePreparedLaunch final : public PreparedLaunch {
 public:
  FakePreparedLaunch(FakeNode& node, std::function<Status(std::uint32_t)> launch)
      : node_(node), launch_(std::move(launch)) {
    EXPECT_EQ(node_.running_grids, 0) << "a launch was prepared while a grid ran";
    EXPECT_EQ(node_.gated, 0) << "a launch was prepared while another waited for a client";
    ++node_.prepared;
  }
  ~FakePreparedLaunch() override {
    EXPECT_EQ(node_.running_grids, 0) << "a launch was let go while a grid ran";
    EXPECT_EQ(node_.gated, 0) << "a launch was let go while another waited for a client";
    --node_.prepared;
  }
  Status launch(std::uint32_t parity) override {
    ++node_.prepared_used;
    return launch_(parity);
  }

 private:
  FakeNode& node_;
  std::function<Status(std::uint32_t)> launch_;
};

inline Result<std::unique_ptr<PreparedLaunch>> FakeLauncher::prepare(std::uint32_t queue,
                                                                     const CudaGate& gate,
                                                                     CudaAlgorithm algorithm,
                                                                     const CudaAllReduce& call) {
  if (node_.preparing_fails)
    return error(ErrorCode::ResourceExhausted, Reason::OutOfMemory, "no memory for it");
  return std::unique_ptr<PreparedLaunch>(
      std::make_unique<FakePreparedLaunch>(node_, [=, this](std::uint32_t parity) {
        CudaGate own = gate;
        own.parity = parity;
        return launch_behind(queue, own, algorithm, call);
      }));
}

}  // namespace arcomm::test
