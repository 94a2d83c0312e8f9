// What the daemon does for operations that its clients launch by themselves.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <chrono>
#include <thread>

#include "daemon/plan/in_stream_share.h"
#include "daemon/plan/launch_table_builder.h"
#include "daemon/plan/recorded_algorithm.h"
#include "proto/gpu/in_stream_images.h"
#include "proto/gpu/launch_table.h"
#include "tests/unit/daemon/exec/gpu/gpu_fixture.h"

namespace arcomm::test {
namespace {

class GpuInStreamTest : public GpuWorkerTest {
 protected:
  void SetUp() override {
    node_.in_stream_image.resize(1000, std::byte{42});
    node_.coded_image.resize(5000, std::byte{43});
    GpuWorkerTest::SetUp();
  }
  static Done waited_for(Rank culprit) {
    return {.number = 5,
            .code = static_cast<std::uint8_t>(ErrorCode::DeadlineExceeded),
            .reason = static_cast<std::uint8_t>(Reason::Timeout),
            .culprit_rank = static_cast<std::int16_t>(culprit)};
  }
  // In-stream operations of all ranks; and for longer than it takes to be known to wait.
  void wait_until_seen(std::uint64_t begun) {
    EXPECT_TRUE(eventually([&] {
      std::uint64_t seen = 0;
      for (const CommunicatorSnapshot& communicator : inspect().communicators) {
        for (const RankSnapshot& rank : communicator.ranks) seen += rank.next_seq;
      }
      return seen == begun;
    }));
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  static std::uint64_t most_in_stream(const GpuRank& rank) {
    return stretches_of(rank.launches, DType::Float16).front().most_bytes;
  }
  static std::uint32_t most_blocks(const GpuRank& rank) { return most_blocks_of(rank, 4 << 20); }
  static std::uint32_t most_blocks_of(const GpuRank& rank, std::uint64_t bytes) {
    return rank.launches.find({.bytes = bytes, .dtype = DType::Float16}).in_stream.blocks;
  }
  // Of the only communicator.
  CommunicatorSnapshot snapshot() {
    const std::vector<CommunicatorSnapshot> all = inspect().communicators;
    EXPECT_EQ(all.size(), 1u);
    return all.empty() ? CommunicatorSnapshot{} : all.front();
  }
  void expect_nothing_in_stream(const std::string& why) {
    for (const GpuRank* rank : group(2)) {
      EXPECT_EQ(rank->exchange_bytes, 0u);
      EXPECT_FALSE(rank->launches.has_in_stream());
    }
    const CommunicatorSnapshot shown = snapshot();
    EXPECT_NE(shown.why_not_in_stream.find(why), std::string::npos) << shown.why_not_in_stream;
    ASSERT_TRUE(shown.launches);
    EXPECT_FALSE(shown.launches->has_in_stream());
  }
  static HostDoorbells& doorbells(const GpuRank& rank) {
    return *rank.doorbells.as<HostDoorbells>();
  }
};

TEST_F(GpuInStreamTest, LendsEveryRankTheKernelsAndAllExchanges) {
  const auto ranks = group(3);
  for (const GpuRank* rank : ranks) {
    EXPECT_NE(rank->exchange_bytes, 0u);
    ASSERT_EQ(rank->exchanges.size(), 3u);
    ASSERT_TRUE(rank->image);
  }
  *ranks[0]->exchanges[2].as<std::uint32_t>() = 7;
  EXPECT_EQ(*ranks[1]->exchanges[2].as<std::uint32_t>(), 7u) << "one memory for all";
  EXPECT_EQ(*ranks[1]->exchanges[1].as<std::uint32_t>(), 0u) << "one for each rank";
}

TEST_F(GpuInStreamTest, LetsNoClientWriteTheKernelsOfAll) {
  const auto ranks = group(2);
  const int fd = ranks[0]->image.get();
  InStreamDirectory directory;
  ASSERT_EQ(::pread(fd, &directory, sizeof(directory), 0), sizeof(directory));
  struct stat facts {};
  ASSERT_EQ(::fstat(fd, &facts), 0);
  const auto read = [&](Codec codec) {
    EXPECT_TRUE(directory.has(codec, static_cast<std::uint64_t>(facts.st_size))) << text_of(codec);
    const InStreamDirectory::Place place = directory.images[static_cast<std::size_t>(codec)];
    std::vector<std::byte> image(place.bytes);
    EXPECT_EQ(::pread(fd, image.data(), image.size(), static_cast<off_t>(place.offset)),
              static_cast<ssize_t>(image.size()));
    return image;
  };
  std::vector<std::byte> image = read(Codec::None);
  EXPECT_EQ(image, node_.in_stream_image);
  EXPECT_EQ(read(Codec::Fp8), node_.coded_image);
  EXPECT_FALSE(directory.has(Codec::Q4, static_cast<std::uint64_t>(facts.st_size)));
  EXPECT_LT(::pwrite(fd, image.data(), 1, 0), 0);
  EXPECT_NE(::ftruncate(fd, 10), 0);
  EXPECT_EQ(::mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0), MAP_FAILED);
}

TEST_F(GpuInStreamTest, LendsNothingWhereAProcessDoesNotSeeAllGpus) {
  see_ = {{"GPU-0", "GPU-1"}, {"GPU-1"}};
  expect_nothing_in_stream("rank 1's process does not see GPU-0, the GPU of rank 0");
  expect_serving(kSmall);
}

// A table of two library versions in one communicator: the same for all, with what both know.
TEST_F(GpuInStreamTest, LendsNothingToAnyRankWhereOneKnowsOtherKernels) {
  abis_ = {kInStreamAbi, kInStreamAbi - 1};
  expect_nothing_in_stream("rank 1's library knows in-stream kernels of version " +
                           std::to_string(kInStreamAbi - 1));
  expect_serving(kSmall);
}

TEST_F(GpuInStreamTest, SaysWhichProcessHasAPartOfTheSms) {
  hindrances_ = {InStreamHindrance::SmLimit};
  expect_nothing_in_stream("MPS gives rank 0's process a part of the SMs");
}

TEST_F(GpuInStreamTest, SaysWhichProcessMayNotWaitInKernels) {
  hindrances_ = {InStreamHindrance::None, InStreamHindrance::PostsByMemory};
  expect_nothing_in_stream("rank 1's process has ARCOMM_POST=memops set");
}

TEST_F(GpuInStreamTest, HandsEveryRankTheSameTableAndKeepsToIt) {
  const auto ranks = group(3);
  for (const GpuRank* rank : ranks) {
    EXPECT_EQ(rank->launches, ranks[0]->launches);
    EXPECT_EQ(rank->launches.ranks(), 3u);
  }
  EXPECT_EQ(snapshot().launches, ranks[0]->launches);
  EXPECT_EQ(snapshot().why_not_in_stream, "");
}

TEST_F(GpuInStreamTest, LendsNothingWhenItIsTurnedOff) {
  Settings settings;
  settings.gpu.in_stream = false;
  start(settings);
  expect_nothing_in_stream("gpu.in_stream is off");
  expect_serving(kSmall);
}

TEST_F(GpuInStreamTest, LendsUpToWhereItWasMeasuredToBeFaster) {
  const auto tuned = [&](double in_stream_us) {
    auto table = std::make_shared<TuningTable>();
    table->gpu.points = {
        {2, 1024, CudaAlgorithm::Stream, 5.0},    {2, 1024, std::nullopt, in_stream_us},
        {2, 1 << 20, CudaAlgorithm::Stream, 5.0}, {2, 1 << 20, std::nullopt, in_stream_us},
        {2, 4 << 20, CudaAlgorithm::Stream, 5.0}, {2, 4 << 20, std::nullopt, 50.0}};
    table->gpu.settle();
    worker_->use_tuning(table);
  };
  tuned(30);
  for (const GpuRank* rank : group(2)) EXPECT_EQ(most_in_stream(*rank), kMaxResidentBytes);
  tuned(3);
  for (const GpuRank* rank : group(2)) EXPECT_EQ(most_in_stream(*rank), 2u << 20);
}

TEST_F(GpuInStreamTest, LendsTheSecondCommunicatorOnAGpuASmallShareAndTheThirdWhatIsLeft) {
  for (const GpuRank* rank : group(2)) EXPECT_EQ(most_blocks(*rank), kMaxInStreamBlocks);
  for (const GpuRank* rank : group(2)) EXPECT_EQ(most_blocks(*rank), kSmallShare);
  for (const GpuRank* rank : group(2)) EXPECT_EQ(most_in_stream(*rank), 16u * 1024);
  for (const GpuRank* rank : group(2)) EXPECT_EQ(rank->exchange_bytes, 0u);
  std::vector<std::string> why;
  for (const CommunicatorSnapshot& one : inspect().communicators)
    why.push_back(one.why_not_in_stream);
  EXPECT_THAT(why, testing::UnorderedElementsAre(
                       "",
                       "other communicators have 95 of the 132 SMs of GPU-0, which leaves 25 for "
                       "this one",
                       "other communicators have 120 of the 132 SMs of GPU-0, which leaves 1 for "
                       "this one, up to 16 KB; gpu.in_stream_communicators keeps some for more",
                       "other communicators have 121 of the 132 SMs of GPU-0; "
                       "gpu.in_stream_communicators keeps some for more"));
  expect_serving(kSmall);
}

TEST_F(GpuInStreamTest, LendsThirdAndFourthCommunicatorsSharesOfTheirOwnWhereItIsToldTo) {
  Settings settings;
  settings.gpu.in_stream_communicators = 4;
  start(settings);
  for (const GpuRank* rank : group(2)) EXPECT_EQ(most_blocks(*rank), 45u);
  for (int i = 1; i < 4; ++i) {
    for (const GpuRank* rank : group(2)) {
      EXPECT_EQ(most_blocks(*rank), kSmallShare);
      EXPECT_GT(most_in_stream(*rank), 4u << 20);
    }
  }
  expect_serving(kSmall);
}

TEST_F(GpuInStreamTest, FillsNoMoreSmsThanItsRanksAskFor) {
  most_sms_ = 16;
  const auto first = group(2);
  for (const GpuRank* rank : first) {
    EXPECT_EQ(most_blocks_of(*rank, 256 << 10), 16u);
    EXPECT_GT(most_in_stream(*rank), 2u << 20) << "as far as its areas hold it";
  }
  EXPECT_EQ(snapshot().most_sms, 16u);
  EXPECT_EQ(snapshot().why_not_in_stream, "its ranks ask for 16 SMs at most");
  most_sms_ = 0;
  for (const GpuRank* rank : group(2))
    EXPECT_EQ(most_blocks(*rank), kMaxInStreamBlocks) << "what the first one left";
  most_sms_ = 8;
  for (const GpuRank* rank : group(2)) EXPECT_EQ(most_blocks_of(*rank, 1 << 20), 8u);
  most_sms_ = 1;
  for (const GpuRank* rank : group(2)) EXPECT_EQ(most_blocks_of(*rank, 64 << 10), 1u);
  most_sms_ = 8;
  for (const GpuRank* rank : group(2)) EXPECT_EQ(most_in_stream(*rank), 16u * 1024) << "a tiny one";
  std::vector<std::string> why;
  for (const CommunicatorSnapshot& one : inspect().communicators)
    why.push_back(one.why_not_in_stream);
  EXPECT_THAT(why, testing::Contains("other communicators have 120 of the 132 SMs of GPU-0, which "
                                     "leaves 1 for this one, up to 16 KB; "
                                     "gpu.in_stream_communicators keeps some for more"));
  for (const GpuRank* rank : group(2)) EXPECT_EQ(rank->exchange_bytes, 0u);
}

// By the least that any of its GPUs has: what it takes of an emptier one is of what tiny shares may
// have there.
TEST_F(GpuInStreamTest, LendsATinyShareOnAllGpusOfACommunicatorWhereOneHasNoMore) {
  const auto on = [&](std::vector<int> gpus) {
    std::vector<GpuRank*> made;
    for (const int gpu : gpus) made.push_back(&rank(gpu, kLarge * sizeof(float)));
    form(made, gpus);
    return made.front();
  };
  EXPECT_EQ(most_blocks(*on({0, 1})), kMaxInStreamBlocks);
  EXPECT_EQ(most_blocks(*on({0, 1})), kSmallShare);
  EXPECT_EQ(most_in_stream(*on({1, 2})), 16u * 1024);
  EXPECT_EQ(on({0, 2})->exchange_bytes, 0u) << "GPU-2 has but large and small ones left";
}

TEST_F(GpuInStreamTest, LendsAgainWhatAFailedCommunicatorHad) {
  const auto ranks = group(2);
  const Done why{.number = 1, .code = static_cast<std::uint8_t>(ErrorCode::Aborted)};
  store_word(doorbells(*ranks[0]).in_stream_failed, to_word(why));
  ASSERT_NE(ranks[0]->closed().code, 0);
  for (const GpuRank* rank : group(2)) EXPECT_EQ(most_blocks(*rank), kMaxInStreamBlocks);
}

TEST_F(GpuInStreamTest, LaunchesWhatIsCalledAtItsDoorbells) {
  expect_serving(kLarge, 2);
}

TEST_F(GpuInStreamTest, CountsTheOperationsThatItDoesNotSee) {
  const auto ranks = group(2);
  for (GpuRank* rank : ranks)
    __atomic_store_n(&doorbells(*rank).in_stream_begun, 5u, __ATOMIC_RELEASE);
  EXPECT_TRUE(eventually([&] { return inspect().operations_done == 10; }));
}

TEST_F(GpuInStreamTest, EndsTheCommunicatorWhenARankSaysThatOneFailed) {
  const auto ranks = group(2);
  const Done why{.number = 3,
                 .code = static_cast<std::uint8_t>(ErrorCode::DeadlineExceeded),
                 .reason = static_cast<std::uint8_t>(Reason::Timeout),
                 .culprit_rank = 1};
  store_word(doorbells(*ranks[0]).in_stream_failed, to_word(why));
  for (const GpuRank* rank : ranks)
    expect_closed(*rank, ErrorCode::DeadlineExceeded, Reason::Timeout, 1);
  EXPECT_EQ(recorded_algorithms(), std::set<std::uint8_t>{kInStreamKernel});
}

TEST_F(GpuInStreamTest, SaysOfTwoCommunicatorsThatWaitForEachOtherThatTheyCrossed) {
  const auto one = group(2);
  const auto other = group_again(one);
  const auto call = [](const GpuRank* rank, std::uint32_t number) {
    __atomic_store_n(&doorbells(*rank).in_stream_begun, number, __ATOMIC_RELEASE);
  };
  for (const GpuRank* rank : one) call(rank, 4);
  call(one[0], 5);    // waits for rank 1
  call(other[1], 1);  // which waits for rank 0
  wait_until_seen(5 + 4 + 1);
  store_word(doorbells(*one[0]).in_stream_failed, to_word(waited_for(1)));
  call(other[0], 1);  // its deadline has passed, and its stream goes on
  call(one[1], 5);
  for (const auto& ranks : {one, other}) {
    for (const GpuRank* rank : ranks) {
      const Done closed = rank->closed();
      EXPECT_EQ(name_of(error_code_from(closed.code)), name_of(ErrorCode::DeadlineExceeded));
      EXPECT_EQ(name_of(reason_from(closed.reason)), name_of(Reason::Crossed));
    }
  }
}

TEST_F(GpuInStreamTest, LeavesAnotherCommunicatorAloneThatWaitsForNobodyHere) {
  const auto one = group(2);
  const auto other = group_again(one);
  for (const GpuRank* rank : other)
    __atomic_store_n(&doorbells(*rank).in_stream_begun, 3u, __ATOMIC_RELEASE);
  __atomic_store_n(&doorbells(*one[0]).in_stream_begun, 1u, __ATOMIC_RELEASE);
  wait_until_seen(3 + 3 + 1);
  store_word(doorbells(*one[0]).in_stream_failed, to_word(waited_for(1)));
  for (const GpuRank* rank : one)
    expect_closed(*rank, ErrorCode::DeadlineExceeded, Reason::Timeout, 1);
  for (const GpuRank* rank : other) EXPECT_EQ(rank->closed(std::chrono::milliseconds(20)).code, 0);
}

TEST_F(GpuInStreamTest, TakesNonsenseForTheFailureOfWhoeverSaysIt) {
  const auto ranks = group(2);
  const Done why{.number = 3, .code = 200, .reason = 250, .culprit_rank = 99};
  store_word(doorbells(*ranks[1]).in_stream_failed, to_word(why));
  for (const GpuRank* rank : ranks) {
    const Done closed = rank->closed();
    EXPECT_NE(closed.code, 0);
    EXPECT_EQ(closed.culprit_rank, 1);
  }
  expect_serving(kLarge);
}

TEST_F(GpuInStreamTest, TakesSuchAPlanAwayWhenever) {
  const auto ranks = group(2);
  PlanSpec spec;
  spec.member = ranks[0]->member;
  spec.send_buffer = spec.recv_buffer = ranks[0]->buffer;
  spec.recv_offset_bytes = ranks[0]->half_bytes;
  spec.spec = all_reduce_of(kSmall);
  const Result<PlanId> made =
      await<PlanId>([&](auto done) { worker_->add_plan(ranks[0]->client->id(), spec, done); });
  ASSERT_TRUE(made.ok());
  EXPECT_TRUE(remove_plan(*ranks[0], *made).ok());
}

}  // namespace
}  // namespace arcomm::test
