// In-stream operations without client and daemon: the kernels of the image, on exchanges of the
// test's own. Ranks share GPUs where there are fewer of these, which their blocks fit side by side
// on.
#pragma once

#include <cuda_runtime.h>
#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <random>
#include <vector>

#include "daemon/plan/launch_table_builder.h"
#include "kernels/host/reference.h"
#include "kernels/host/reference_coded.h"
#include "kernels/in_stream/kernels.h"
#include "proto/gpu/launch_table.h"
#include "tests/gpu/kernels/all_reduce_fixture.h"
#include "tests/gpu/kernels/coded_elements.h"

namespace arcomm::gpu {

#define ARC_ASSERT_CUDA(call) ASSERT_EQ(call, cudaSuccess)

inline constexpr std::uint64_t kMaxInStreamBytes = 16 << 20;

class InStreamOnGpus : public testing::TestWithParam<std::uint32_t> {
 protected:
  struct Rank {
    int device = 0;
    cudaStream_t stream = nullptr;
    std::byte *send = nullptr, *recv = nullptr;
    InStreamControl* exchange = nullptr;
    DeviceMailbox* mailbox = nullptr;
    HostDoorbells* doorbells = nullptr;
    std::unique_ptr<InStreamKernels> kernels = {};
  };
  struct Operation {
    DType dtype = DType::Float16;
    ReduceOp op = ReduceOp::Sum;
    std::uint64_t count = 0;
    std::uint64_t send_offset = 0, recv_offset = 0;  // bytes, behind the guard
    bool in_place = false;
    std::uint64_t timeout_ns = 5'000'000'000;
    Codec codec = Codec::None;
    std::uint32_t blocks = 0;  // 0: as the table has it
    std::uint64_t bytes() const { return count * size_of(dtype); }
  };

  void SetUp() override {
    const int devices = count_cuda_devices();
    ASSERT_GE(devices, 1);
    const auto gpus = static_cast<std::uint32_t>(devices);
    const std::uint32_t each = (ranks() + gpus - 1) / gpus;
    int sms = 0;
    ARC_ASSERT_CUDA(cudaDeviceGetAttribute(&sms, cudaDevAttrMultiProcessorCount, 0));
    launches_ = make_launch_table({.ranks = ranks(),
                                   .atomic_128b_stores = true,
                                   .in_stream_blocks = static_cast<std::uint32_t>(sms) / each});
    for (std::uint32_t number = 0; number < ranks(); ++number) {
      Rank rank;
      rank.device = static_cast<int>(number) % devices;
      ARC_ASSERT_CUDA(cudaSetDevice(rank.device));
      Result<std::unique_ptr<InStreamKernels>> kernels = InStreamKernels::load();
      ASSERT_TRUE(kernels.ok()) << kernels.error().to_string();
      rank.kernels = std::move(kernels).value();
      for (int peer = 0; peer < devices && number < gpus; ++peer) {
        if (peer != rank.device) cudaDeviceEnablePeerAccess(peer, 0);
      }
      ARC_ASSERT_CUDA(cudaStreamCreateWithFlags(&rank.stream, cudaStreamNonBlocking));
      ARC_ASSERT_CUDA(cudaMalloc(&rank.send, kMaxInStreamBytes + 3 * kGuard));
      ARC_ASSERT_CUDA(cudaMalloc(&rank.recv, kMaxInStreamBytes + 3 * kGuard));
      ARC_ASSERT_CUDA(cudaMalloc(&rank.exchange, in_stream_exchange_bytes(ranks())));
      ARC_ASSERT_CUDA(cudaMemset(rank.exchange, 0, in_stream_exchange_bytes(ranks())));
      ARC_ASSERT_CUDA(cudaMalloc(&rank.mailbox, kMailboxBytes));
      ARC_ASSERT_CUDA(cudaMemset(rank.mailbox, 0, kMailboxBytes));
      ARC_ASSERT_CUDA(cudaMallocHost(&rank.doorbells, sizeof(HostDoorbells)));
      std::memset(rank.doorbells, 0, sizeof(HostDoorbells));
      ARC_ASSERT_CUDA(cudaDeviceSynchronize());
      ranks_.push_back(std::move(rank));
    }
    cudaGetLastError();  // access that was there already
  }
  void TearDown() override {
    for (Rank& rank : ranks_) {
      cudaSetDevice(rank.device);
      cudaStreamSynchronize(rank.stream);
      cudaStreamDestroy(rank.stream);
      for (void* memory : {static_cast<void*>(rank.send), static_cast<void*>(rank.recv),
                           static_cast<void*>(rank.exchange), static_cast<void*>(rank.mailbox)})
        cudaFree(memory);
      cudaFreeHost(rank.doorbells);
      rank.kernels.reset();
    }
  }

  static std::uint32_t ranks() { return GetParam(); }
  InStreamShape shape_of(const Operation& what) const {
    InStreamShape shape =
        launches_
            .find({.bytes = what.bytes(), .dtype = what.dtype, .op = what.op, .codec = what.codec})
            .in_stream;
    if (what.blocks != 0 && shape.blocks != 0) shape.blocks = what.blocks;
    return shape;
  }
  std::byte* input(const Rank& rank, const Operation& what) const {
    return rank.send + kGuard + what.send_offset;
  }
  std::byte* output(const Rank& rank, const Operation& what) const {
    return what.in_place ? input(rank, what) : rank.recv + kGuard + what.recv_offset;
  }

  // Into the rank's stream, as early as a client launches it.
  void launch(std::uint32_t number, const Operation& what) {
    const Rank& rank = ranks_[number];
    const InStreamShape shape = shape_of(what);
    ASSERT_NE(shape.blocks, 0U) << what.bytes() << " bytes";
    InStreamCall call{.send = input(rank, what),
                      .recv = output(rank, what),
                      .mailbox = rank.mailbox,
                      .doorbells = rank.doorbells,
                      .timeout_ns = what.timeout_ns,
                      .count = static_cast<std::uint32_t>(what.count),
                      .rank = number,
                      .ranks = ranks()};
    for (std::uint32_t other = 0; other < ranks(); ++other)
      call.exchange[other] = ranks_[other].exchange;
    ARC_ASSERT_CUDA(cudaSetDevice(rank.device));
    const Status launched =
        rank.kernels->launch(shape, what.dtype, what.op, call, rank.stream, what.codec);
    ASSERT_TRUE(launched.ok()) << launched.error().to_string();
  }
  void synchronize() {
    for (const Rank& rank : ranks_) {
      ARC_ASSERT_CUDA(cudaSetDevice(rank.device));
      ARC_ASSERT_CUDA(cudaStreamSynchronize(rank.stream));
    }
  }
  Done failure(std::uint32_t number) const {
    std::uint64_t failed = 0;
    cudaMemcpy(&failed, &ranks_[number].mailbox->failed, 8, cudaMemcpyDeviceToHost);
    return done_from(failed);
  }
  void expect_no_failure() {
    for (std::uint32_t rank = 0; rank < ranks(); ++rank)
      EXPECT_EQ(failure(rank).code, 0) << "rank " << rank;
  }

  // Random inputs, poisoned outputs; what the outputs shall be.
  void prepare(const Operation& what) {
    AllReduceArgs args = AllReduceArgs::among(ranks(), what.count, what.dtype, what.op);
    std::vector<std::vector<std::byte>> inputs(ranks()), outputs(ranks());
    for (std::uint32_t number = 0; number < ranks(); ++number) {
      const Rank& rank = ranks_[number];
      inputs[number].resize(what.bytes() + 8);
      outputs[number].resize(what.bytes() + 1);
      if (what.codec == Codec::None) {
        fill(inputs[number], what.dtype, random_);
      } else {
        inputs[number] = Elements(static_cast<unsigned>(random_())).make(what.dtype, what.count);
        inputs[number].resize(what.bytes() + 8);
      }
      args.inputs[number] = inputs[number].data();
      args.outputs[number] = outputs[number].data();
      cudaSetDevice(rank.device);
      cudaMemset(rank.recv, 0xa5, kMaxInStreamBytes + 3 * kGuard);
      cudaMemset(rank.send, 0xa5, kGuard + what.send_offset + what.bytes() + kGuard);
      cudaMemcpy(input(rank, what), inputs[number].data(), what.bytes(), cudaMemcpyHostToDevice);
      cudaDeviceSynchronize();
    }
    args.codec = what.codec;
    if (what.codec != Codec::None && ranks() > 2) {
      reference::coded_all_reduce_in_two_hops(args, 0, what.count);
    } else {
      reference::all_reduce_range(args, 0, what.count);
    }
    expected_ = std::move(outputs[0]);
  }
  void expect_results(const Operation& what) {
    std::vector<std::byte> got(what.bytes() + 2 * kGuard);
    for (std::uint32_t number = 0; number < ranks(); ++number) {
      const Rank& rank = ranks_[number];
      ARC_ASSERT_CUDA(cudaSetDevice(rank.device));
      ARC_ASSERT_CUDA(
          cudaMemcpy(got.data(), output(rank, what) - kGuard, got.size(), cudaMemcpyDeviceToHost));
      ASSERT_EQ(std::memcmp(&got[kGuard], expected_.data(), what.bytes()), 0)
          << "rank " << number << " of " << ranks() << ", " << what.dtype << " " << what.op << ", "
          << "codec " << text_of(what.codec) << ", " << shape_of(what).blocks << " blocks, "
          << what.count << " elements, offsets " << what.send_offset << " and " << what.recv_offset
          << (what.in_place ? ", in place" : "");
      const auto is_poison = [](std::byte b) { return b == std::byte{0xa5}; };
      ASSERT_TRUE(std::all_of(got.begin(), got.begin() + kGuard, is_poison) &&
                  std::all_of(got.end() - kGuard, got.end(), is_poison))
          << "written outside of the output: " << what.count << " " << what.dtype;
    }
  }
  void check(const Operation& what) {
    ASSERT_NO_FATAL_FAILURE(prepare(what));
    for (std::uint32_t rank = 0; rank < ranks(); ++rank)
      ASSERT_NO_FATAL_FAILURE(launch(rank, what));
    ASSERT_NO_FATAL_FAILURE(synchronize());
    ASSERT_NO_FATAL_FAILURE(expect_results(what));
  }
  // Rank 0 calls another operation than the others: all are told, and nothing is written.
  void expect_mismatch(const Operation& what, const Operation& other) {
    ASSERT_NO_FATAL_FAILURE(prepare(what));
    for (std::uint32_t rank = 0; rank < ranks(); ++rank)
      ASSERT_NO_FATAL_FAILURE(launch(rank, rank == 0 ? other : what));
    ASSERT_NO_FATAL_FAILURE(synchronize());
    expected_.assign(expected_.size(), std::byte{0xa5});
    expect_results(what);
    for (std::uint32_t rank = 0; rank < ranks(); ++rank)
      EXPECT_EQ(failure(rank).reason, static_cast<std::uint8_t>(Reason::Mismatch)) << rank;
  }

  std::vector<Rank> ranks_;
  std::vector<std::byte> expected_;
  LaunchTable launches_;
  std::mt19937_64 random_{20261123};
};

}  // namespace arcomm::gpu
