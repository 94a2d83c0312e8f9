// Resident grids on the first GPUs of this machine and communicators over them, all ranks in this
// process: posted to through their doorbells, and compared with the host's reference bit for bit.
#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <memory>
#include <random>
#include <vector>

#include "kernels/host/reference.h"
#include "kernels/resident/grid.h"
#include "tests/gpu/kernels/node/gpu_node.h"
#include "tests/gpu/kernels/poster.h"

namespace arcomm::gpu {

using namespace std::chrono_literals;

inline constexpr std::uint64_t kBytes = 1 << 20;
inline constexpr std::uint64_t kTimeoutNs = 300'000'000;

// One communicator over all GPUs: a mailbox, scratch and a slot per rank.
struct Group {
  std::vector<Memory> mailboxes, scratch;
  std::vector<std::uint32_t> slots;
};

class ResidentGrids : public testing::TestWithParam<int> {
 protected:
  void SetUp() override {
    auto node = GpuNode::open(GetParam(), kBytes);
    ASSERT_TRUE(node) << node.error().to_string();
    node_ = std::make_unique<GpuNode>(std::move(*node));
    for (int rank = 0; rank < ranks(); ++rank) {
      auto grid = ResidentGrid::create(rank);
      ASSERT_TRUE(grid) << grid.error().to_string();
      grids_.push_back(std::move(*grid));
      cudaSetDevice(rank);
      // Loads the poster before a resident grid could make that wait.
      for (auto* stream : {&(*node_)[rank].stream, &(*node_)[rank].side}) {
        ASSERT_EQ(cudaStreamSynchronize((*stream)->handle()), cudaSuccess);
      }
    }
    main_ = &make_group();
  }
  void TearDown() override {
    for (auto& grid : grids_) {
      const Status paused = grid->pause(2s);
      if (paused) continue;
      // Whatever else is destroyed now would wait for it, for ever.
      std::fprintf(stderr, "the resident grid does not leave: %s\n",
                   paused.error().to_string().c_str());
      std::_Exit(1);
    }
  }

  int ranks() const { return node_->ranks(); }
  void resume() {
    for (auto& grid : grids_) {
      const Status resumed = grid->resume();
      ASSERT_TRUE(resumed) << resumed.error().to_string();
    }
  }
  void pause() {
    for (auto& grid : grids_) {
      const Status paused = grid->pause(2s);
      ASSERT_TRUE(paused) << paused.error().to_string();
    }
  }

  // Lives until the grids have been paused for good.
  // before: number of the last operation that went before.
  Group& make_group(std::uint32_t before = 0) {
    pause();
    Group& group = groups_.emplace_back();
    for (int rank = 0; rank < ranks(); ++rank) {
      group.mailboxes.push_back(std::move(*(*node_)[rank].device->allocate(kMailboxBytes)));
      group.scratch.push_back(
          std::move(*(*node_)[rank].device->allocate(resident_scratch_bytes())));
    }
    for (int rank = 0; rank < ranks(); ++rank) {
      ResidentMember member{.mailbox = mailbox(group, rank),
                            .rank = static_cast<std::uint32_t>(rank),
                            .ranks = static_cast<std::uint32_t>(ranks()),
                            .number = before};
      const std::uint64_t doorbell = to_word(Doorbell{.number = before});
      auto& path = mailbox(group, rank)->paths[0];
      copy(rank, &path.posted, &before, sizeof(before), cudaMemcpyHostToDevice);
      copy(rank, &path.doorbell, &doorbell, sizeof(doorbell), cudaMemcpyHostToDevice);
      for (int r = 0; r < ranks(); ++r)
        member.scratch[r] = group.scratch[static_cast<std::size_t>(r)].data();
      auto slot = grids_[static_cast<std::size_t>(rank)]->add_member(member);
      EXPECT_TRUE(slot) << slot.error().to_string();
      group.slots.push_back(*slot);
    }
    return group;
  }
  static DeviceMailbox* mailbox(const Group& group, int rank) {
    return reinterpret_cast<DeviceMailbox*>(group.mailboxes[static_cast<std::size_t>(rank)].data());
  }
  void set_plan(const Group& group, int rank, std::uint32_t index, const ResidentPlan& plan) {
    const auto at = static_cast<std::size_t>(rank);
    const Status set = grids_[at]->set_plan(index, group.slots[at], plan);
    ASSERT_TRUE(set) << set.error().to_string();
  }
  ResidentPlan plan(int rank, std::uint64_t count, DType dtype, ReduceOp op,
                    std::uint64_t send_offset = 0, std::uint64_t recv_offset = 0,
                    bool in_place = false) {
    const CudaAllReduce call =
        node_->call(rank, count, dtype, op, send_offset, recv_offset, in_place);
    return {.send = call.send[rank],
            .recv = call.recv[rank],
            .count = count,
            .timeout_ns = kTimeoutNs,
            .dtype = dtype,
            .op = op};
  }
  void post_all(const Group& group, std::uint32_t index, std::uint32_t times = 1) {
    for (int rank = 0; rank < ranks(); ++rank) {
      cudaSetDevice(rank);
      ASSERT_EQ(post(mailbox(group, rank), index, times, (*node_)[rank].stream->handle()),
                cudaSuccess);
    }
  }
  ResidentStatus status(const Group& group, int rank) {
    const auto at = static_cast<std::size_t>(rank);
    return grids_[at]->status(group.slots[at]);
  }
  DeviceMailbox read_mailbox(const Group& group, int rank) {
    DeviceMailbox copy;
    cudaSetDevice(rank);
    auto* queue = (*node_)[rank].side->handle();
    cudaMemcpyAsync(&copy, mailbox(group, rank), sizeof(copy), cudaMemcpyDeviceToHost, queue);
    cudaStreamSynchronize(queue);
    return copy;
  }
  void copy(int rank, void* to, const void* from, std::uint64_t bytes, cudaMemcpyKind kind) {
    cudaSetDevice(rank);
    auto* queue = (*node_)[rank].side->handle();
    ASSERT_EQ(cudaMemcpyAsync(to, from, bytes, kind, queue), cudaSuccess);
    ASSERT_EQ(cudaStreamSynchronize(queue), cudaSuccess);
  }

  void check(DType dtype, ReduceOp op, std::uint64_t count, std::uint64_t send_offset,
             std::uint64_t recv_offset, bool in_place) {
    const std::uint64_t bytes = count * size_of(dtype);
    std::vector<std::vector<std::byte>> inputs(static_cast<std::size_t>(ranks())),
        expected = inputs;
    AllReduceArgs args =
        AllReduceArgs::among(static_cast<std::uint32_t>(ranks()), count, dtype, op);
    const std::vector<std::byte> poison(bytes + 64, std::byte{0xa5});
    for (int rank = 0; rank < ranks(); ++rank) {
      auto& input = inputs[static_cast<std::size_t>(rank)];
      auto& output = expected[static_cast<std::size_t>(rank)];
      input.resize(bytes + 8);
      for (std::byte& byte : input) byte = static_cast<std::byte>(random_());
      output.resize(bytes + 1);
      args.inputs[rank] = input.data();
      args.outputs[rank] = output.data();
      copy(rank, (*node_)[rank].recv.data() + recv_offset, poison.data(), bytes + 64,
           cudaMemcpyHostToDevice);
      copy(rank, (*node_)[rank].send.data() + send_offset, input.data(), bytes,
           cudaMemcpyHostToDevice);
      set_plan(*main_, rank, 5, plan(rank, count, dtype, op, send_offset, recv_offset, in_place));
    }
    reference::all_reduce_range(args, 0, count);
    post_all(*main_, 5);
    const Status ended = node_->synchronize(20s);
    ASSERT_TRUE(ended) << ended.error().to_string();
    for (int rank = 0; rank < ranks(); ++rank) {
      std::vector<std::byte> got(bytes + 64);
      const auto& memory = in_place ? (*node_)[rank].send : (*node_)[rank].recv;
      copy(rank, got.data(), memory.data() + (in_place ? send_offset : recv_offset),
           in_place ? bytes : bytes + 64, cudaMemcpyDeviceToHost);
      ASSERT_EQ(std::memcmp(got.data(), expected[static_cast<std::size_t>(rank)].data(), bytes), 0)
          << text_of(dtype) << " " << text_of(op) << " count " << count << " rank " << rank
          << " offsets " << send_offset << " " << recv_offset;
      for (std::uint64_t i = bytes; !in_place && i < bytes + 64; ++i)
        ASSERT_EQ(got[i], std::byte{0xa5}) << "written behind the output";
      EXPECT_EQ(status(*main_, rank).failed.code, 0);
    }
  }

  std::unique_ptr<GpuNode> node_;
  std::vector<std::unique_ptr<ResidentGrid>> grids_;
  std::deque<Group> groups_;
  Group* main_ = nullptr;
  std::mt19937_64 random_{7};
};

}  // namespace arcomm::gpu
