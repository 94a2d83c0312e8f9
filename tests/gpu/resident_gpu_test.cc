// The resident grid through its doors, all ranks in this process: against the host's reference bit
// for bit, and what it does when a rank does not come, asks for something else, or is aborted.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <deque>
#include <memory>
#include <random>
#include <thread>
#include <vector>

#include "kernels/host/reference.h"
#include "kernels/resident.h"
#include "tests/gpu/gpu_node.h"
#include "tests/gpu/poster.h"

namespace arcomm::gpu {
namespace {

using namespace std::chrono_literals;

constexpr std::uint64_t kBytes = 1 << 20;
constexpr std::uint64_t kTimeoutNs = 300'000'000;

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
  Group& make_group() {
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
                            .ranks = static_cast<std::uint32_t>(ranks())};
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
    AllReduceArgs args{
        .count = count, .ranks = static_cast<std::uint32_t>(ranks()), .dtype = dtype, .op = op};
    const std::vector<std::byte> poison(bytes + 64, std::byte{0xa5});
    for (int rank = 0; rank < ranks(); ++rank) {
      auto& input = inputs[static_cast<std::size_t>(rank)];
      auto& output = expected[static_cast<std::size_t>(rank)];
      input.resize(bytes + 8);
      for (std::byte& byte : input) byte = static_cast<std::byte>(random_());
      output.resize(bytes + 1);
      args.send[rank] = input.data();
      args.recv[rank] = output.data();
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

TEST_P(ResidentGrids, LeaveWhenTold) {
  for (int i = 0; i < 20; ++i) {
    resume();
    const auto begin = std::chrono::steady_clock::now();
    pause();
    if (HasFatalFailure()) return;
    const auto took = std::chrono::steady_clock::now() - begin;
    std::printf("%.0f us ", std::chrono::duration<double, std::micro>(took).count());
  }
  std::printf("to pause\n");
}

TEST_P(ResidentGrids, RunOneOperation) {
  resume();
  for (int rank = 0; rank < ranks(); ++rank)
    set_plan(*main_, rank, 1, plan(rank, 16, DType::Float32, ReduceOp::Sum));
  post_all(*main_, 1);
  ASSERT_TRUE(node_->synchronize(5s));
  for (int rank = 0; rank < ranks(); ++rank) {
    const DeviceMailbox seen = read_mailbox(*main_, rank);
    EXPECT_EQ(seen.lanes[0].posted, 1U);
    EXPECT_EQ(seen.lanes[0].door, to_word(Door{.number = 1, .plan = 1}));
    EXPECT_EQ(seen.lanes[0].done, to_word(Done{.number = 1}));
    EXPECT_EQ(seen.closed, 0U) << "code " << int{done_from(seen.closed).code} << " reason "
                               << int{done_from(seen.closed).reason};
    EXPECT_EQ(status(*main_, rank).done, 1U);
  }
}

TEST_P(ResidentGrids, EveryTypeAndOperationIsTheReferenceBitForBit) {
  resume();
  for (unsigned dtype = 0; dtype < kDTypes; ++dtype) {
    for (unsigned op = 0; op < kReduceOps; ++op) {
      const auto type = static_cast<DType>(dtype);
      const std::uint64_t size = size_of(type);
      check(type, static_cast<ReduceOp>(op), 1 + random_() % 3000, 0, 0, false);
      check(type, static_cast<ReduceOp>(op), 1 + random_() % (kMaxResidentBytes / size), size,
            3 * size, op % 2 == 0);
      if (HasFatalFailure()) return;
    }
  }
}

TEST_P(ResidentGrids, CountsAndAlignmentsAtTheEdges) {
  resume();
  for (const std::uint64_t count :
       {std::uint64_t{1}, std::uint64_t{3}, std::uint64_t{4}, std::uint64_t{1023},
        std::uint64_t{1024}, std::uint64_t{1025}, std::uint64_t{10240}, std::uint64_t{10241},
        kMaxResidentBytes / 2 - 1, kMaxResidentBytes / 2}) {
    for (const std::uint64_t offset : {0U, 2U, 6U}) {
      check(DType::BFloat16, ReduceOp::Sum, count, offset, 8 - offset, offset == 2);
      if (HasFatalFailure()) return;
    }
  }
}

TEST_P(ResidentGrids, ManyOperationsOfAnySizeAndAlignment) {
  resume();
  for (int i = 0; i < 300; ++i) {
    const std::uint64_t count = 1 + random_() % (kMaxResidentBytes / 2);
    check(DType::Float16, ReduceOp::Sum, count, random_() % 16 * 2, random_() % 16 * 2, i % 3 == 0);
    if (HasFatalFailure()) return;
  }
}

TEST_P(ResidentGrids, TenThousandOperationsOfChangingSizesInARow) {
  resume();
  std::vector<std::uint64_t> counts;
  for (std::uint32_t index = 0; index < 64; ++index) {
    const std::uint64_t count = 1 + random_() % (kMaxResidentBytes / 2);
    for (int rank = 0; rank < ranks(); ++rank)
      set_plan(*main_, rank, index, plan(rank, count, DType::Float16, ReduceOp::Max, 0, 0, true));
  }
  for (int i = 0; i < 10'000; ++i) {
    post_all(*main_, static_cast<std::uint32_t>(random_() % 64));
    if (i % 256 == 255) {
      const Status ended = node_->synchronize(20s);
      ASSERT_TRUE(ended) << ended.error().to_string();
    }
  }
  ASSERT_TRUE(node_->synchronize(20s));
  for (int rank = 0; rank < ranks(); ++rank) {
    EXPECT_EQ(status(*main_, rank).done, 10'000U);
    EXPECT_EQ(status(*main_, rank).failed.code, 0);
  }
  check(DType::Float32, ReduceOp::Sum, kMaxResidentBytes / 4, 0, 0, false);
}

TEST_P(ResidentGrids, LeavesAndComesBackInTheMiddleOfAnOperation) {
  for (int rank = 0; rank < ranks(); ++rank)
    set_plan(*main_, rank, 1, plan(rank, kMaxResidentBytes / 4, DType::Float32, ReduceOp::Sum));
  resume();
  for (int round = 0; round < 50; ++round) {
    for (int rank = 0; rank < ranks() - 1; ++rank) {
      cudaSetDevice(rank);
      ASSERT_EQ(post(mailbox(*main_, rank), 1, 1, (*node_)[rank].stream->handle()), cudaSuccess);
    }
    const auto begin = std::chrono::steady_clock::now();
    pause();
    EXPECT_LT(std::chrono::steady_clock::now() - begin, 20ms);
    resume();
    const int last = ranks() - 1;
    cudaSetDevice(last);
    ASSERT_EQ(post(mailbox(*main_, last), 1, 1, (*node_)[last].stream->handle()), cudaSuccess);
    ASSERT_TRUE(node_->synchronize(5s));
  }
  for (int rank = 0; rank < ranks(); ++rank) EXPECT_EQ(status(*main_, rank).done, 50U);
}

TEST_P(ResidentGrids, ARankThatDoesNotComeIsNamed) {
  resume();
  for (int rank = 0; rank < ranks(); ++rank)
    set_plan(*main_, rank, 1, plan(rank, 1000, DType::Float32, ReduceOp::Sum));
  cudaSetDevice(0);
  ASSERT_EQ(post(mailbox(*main_, 0), 1, 1, (*node_)[0].stream->handle()), cudaSuccess);
  const auto begin = std::chrono::steady_clock::now();
  ASSERT_TRUE(node_->synchronize(5s));
  const auto took = std::chrono::steady_clock::now() - begin;
  EXPECT_LT(took, std::chrono::nanoseconds(kTimeoutNs) + 100ms);
  const ResidentStatus told = status(*main_, 0);
  EXPECT_EQ(told.failed.code, static_cast<unsigned>(ErrorCode::DeadlineExceeded));
  EXPECT_EQ(told.failed.reason, static_cast<unsigned>(Reason::Timeout));
  EXPECT_EQ(told.failed.culprit_rank, 1);
  EXPECT_EQ(read_mailbox(*main_, 0).closed, to_word(told.failed));
}

TEST_P(ResidentGrids, RanksThatAskForDifferentThingsAreToldSo) {
  resume();
  for (int rank = 0; rank < ranks(); ++rank)
    set_plan(*main_, rank, 1, plan(rank, rank == 1 ? 30'000 : 1000, DType::Float32, ReduceOp::Sum));
  post_all(*main_, 1);
  ASSERT_TRUE(node_->synchronize(5s));
  for (int rank = 0; rank < ranks(); ++rank) {
    const Done failed = status(*main_, rank).failed;
    EXPECT_EQ(failed.reason, static_cast<unsigned>(Reason::Mismatch)) << rank;
    if (rank != 1) {
      EXPECT_EQ(failed.culprit_rank, 1) << rank;
    }
  }
}

TEST_P(ResidentGrids, AnAbortEndsAWaitInLessThanAMillisecond) {
  resume();
  for (int rank = 0; rank < ranks(); ++rank)
    set_plan(*main_, rank, 1, plan(rank, 1000, DType::Float32, ReduceOp::Sum));
  cudaSetDevice(0);
  ASSERT_EQ(post(mailbox(*main_, 0), 1, 1, (*node_)[0].stream->handle()), cudaSuccess);
  std::this_thread::sleep_for(20ms);
  const Done why{.number = 1,
                 .code = static_cast<std::uint8_t>(ErrorCode::Aborted),
                 .reason = static_cast<std::uint8_t>(Reason::RemoteDied),
                 .culprit_rank = 1};
  const auto begin = std::chrono::steady_clock::now();
  ASSERT_TRUE(grids_[0]->abort_member(main_->slots[0], why));
  while (status(*main_, 0).failed.code == 0 &&
         std::chrono::steady_clock::now() - begin < std::chrono::seconds(1)) {
  }
  const auto took = std::chrono::steady_clock::now() - begin;
  EXPECT_LT(took, 1ms);
  std::printf("abort seen after %.0f us\n",
              std::chrono::duration<double, std::micro>(took).count());
  ASSERT_TRUE(node_->synchronize(5s));
  EXPECT_EQ(to_word(status(*main_, 0).failed), to_word(why));
}

TEST_P(ResidentGrids, DoorsThatLieEndTheirOwnMemberAlone) {
  Group& liar = make_group();
  resume();
  for (int rank = 0; rank < ranks(); ++rank) {
    set_plan(*main_, rank, 1, plan(rank, 1000, DType::Float32, ReduceOp::Sum));
    set_plan(liar, rank, 2, plan(rank, 1000, DType::Float32, ReduceOp::Sum));
  }
  cudaSetDevice(0);
  auto* side = (*node_)[0].side->handle();
  ASSERT_EQ(knock(mailbox(liar, 0), {.number = 7, .plan = 2}, side), cudaSuccess);
  ASSERT_EQ(cudaStreamSynchronize(side), cudaSuccess);
  post_all(*main_, 1, 100);
  ASSERT_TRUE(node_->synchronize(5s));
  EXPECT_EQ(status(liar, 0).failed.reason, static_cast<unsigned>(Reason::Quarantined));
  // A plan of another member, and one that is none.
  cudaSetDevice(1);
  ASSERT_EQ(knock(mailbox(liar, 1), {.number = 1, .plan = 1}, (*node_)[1].side->handle()),
            cudaSuccess);
  std::this_thread::sleep_for(10ms);
  EXPECT_EQ(status(liar, 1).failed.reason, static_cast<unsigned>(Reason::UnknownHandle));
  for (int rank = 0; rank < ranks(); ++rank) {
    EXPECT_EQ(status(*main_, rank).done, 100U);
    EXPECT_EQ(status(*main_, rank).failed.code, 0);
  }
}

// Its session may live on and keep it; the slot's next member must not start it.
TEST_P(ResidentGrids, APlanOfASlotsFormerMemberIsNoPlan) {
  Group& former = make_group();
  for (int rank = 0; rank < ranks(); ++rank)
    set_plan(former, rank, 9, plan(rank, 1000, DType::Float32, ReduceOp::Sum));
  for (int rank = 0; rank < ranks(); ++rank) {
    const auto at = static_cast<std::size_t>(rank);
    ASSERT_TRUE(grids_[at]->remove_member(former.slots[at]));
  }
  Group& next = make_group();
  ASSERT_EQ(next.slots, former.slots);
  resume();
  post_all(next, 9);
  ASSERT_TRUE(node_->synchronize(5s));
  for (int rank = 0; rank < ranks(); ++rank)
    EXPECT_EQ(status(next, rank).failed.reason, static_cast<unsigned>(Reason::UnknownHandle));
}

TEST_P(ResidentGrids, TwoCommunicatorsInOppositeOrderDoNotBlockEachOther) {
  Group& other = make_group();
  resume();
  for (int rank = 0; rank < ranks(); ++rank) {
    set_plan(*main_, rank, 1, plan(rank, 20'000, DType::Float32, ReduceOp::Max, 0, 0, true));
    set_plan(other, rank, 2,
             plan(rank, 20'000, DType::Float32, ReduceOp::Max, kBytes / 2, 0, true));
  }
  for (int i = 0; i < 2000; ++i) {
    for (int rank = 0; rank < ranks(); ++rank) {
      cudaSetDevice(rank);
      auto* stream = (*node_)[rank].stream->handle();
      auto* side = (*node_)[rank].side->handle();
      const bool main_first = (rank + i) % 2 == 0;
      const auto post_main = [&] { return post(mailbox(*main_, rank), 1, 1, stream); };
      if (main_first) {
        ASSERT_EQ(post_main(), cudaSuccess);
      }
      ASSERT_EQ(post(mailbox(other, rank), 2, 1, side), cudaSuccess);
      if (!main_first) {
        ASSERT_EQ(post_main(), cudaSuccess);
      }
    }
    if (i % 100 == 99) {
      ASSERT_TRUE(node_->synchronize(5s));
    }
  }
  ASSERT_TRUE(node_->synchronize(5s));
  for (int rank = 0; rank < ranks(); ++rank) {
    EXPECT_EQ(status(*main_, rank).done, 2000U) << rank;
    cudaSetDevice(rank);
    cudaStreamSynchronize((*node_)[rank].side->handle());
    EXPECT_EQ(status(other, rank).done, 2000U) << rank;
  }
}

// Figures, not a verdict: an operation as a stream sees it that does nothing else.
TEST_P(ResidentGrids, SaysHowLongAnOperationTakes) {
  resume();
  for (std::uint64_t bytes = 1024; bytes <= kMaxResidentBytes; bytes *= 4) {
    for (int rank = 0; rank < ranks(); ++rank)
      set_plan(*main_, rank, 1, plan(rank, bytes / 2, DType::Float16, ReduceOp::Sum));
    float best = 1e9F;
    for (int turn = 0; turn < 5; ++turn) {
      cudaEvent_t begin, end;
      cudaSetDevice(0);
      cudaEventCreate(&begin);
      cudaEventCreate(&end);
      cudaEventRecord(begin, (*node_)[0].stream->handle());
      post_all(*main_, 1, 2000);
      cudaSetDevice(0);
      cudaEventRecord(end, (*node_)[0].stream->handle());
      ASSERT_TRUE(node_->synchronize(10s));
      float ms = 0;
      cudaEventElapsedTime(&ms, begin, end);
      best = std::min(best, ms / 2);
      cudaEventDestroy(begin);
      cudaEventDestroy(end);
    }
    std::printf("%d ranks, %llu bytes: %.2f us\n", ranks(), static_cast<unsigned long long>(bytes),
                static_cast<double>(best));
  }
}

INSTANTIATE_TEST_SUITE_P(Ranks, ResidentGrids, testing::Values(2, 4),
                         [](const auto& one) { return std::to_string(one.param) + "Gpus"; });

}  // namespace
}  // namespace arcomm::gpu

// Suites for more GPUs than there are do not run; at least one must.
int main(int argc, char** argv) {
  setenv("CUDA_MODULE_LOADING", "EAGER", 1);
  testing::InitGoogleTest(&argc, argv);
  const int gpus = arcomm::count_cuda_devices();
  if (gpus < 2) {
    std::fprintf(stderr, "resident_gpu_test: needs 2 GPUs, and there are %d\n", gpus);
    return 1;
  }
  if (gpus < 4) testing::GTEST_FLAG(filter) = testing::GTEST_FLAG(filter) + "-*4Gpus*";
  return RUN_ALL_TESTS();
}
