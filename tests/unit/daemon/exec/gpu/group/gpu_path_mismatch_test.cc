// Ranks that call different operations which take different launch paths: each waits where the
// other never comes, and only what their libraries wrote down tells the daemon.
#include <gtest/gtest.h>

#include <chrono>
#include <string>
#include <thread>
#include <vector>

#include "tests/unit/daemon/exec/gpu/gpu_fixture.h"

namespace arcomm::test {
namespace {

class GpuPathMismatch : public GpuWorkerTest {
 protected:
  void SetUp() override {
    node_.in_stream_image.resize(1000, std::byte{42});
    GpuWorkerTest::SetUp();
  }
  static HostDoorbells& doorbells(const GpuRank& rank) {
    return *rank.doorbells.as<HostDoorbells>();
  }
  static void note(const GpuRank& rank, LaunchPath path, std::uint32_t number, std::uint32_t call,
                   const OperationSpec& spec) {
    write_note(rank.doorbells.as<HostPages>()->called[static_cast<int>(path)][number % kCallNotes],
               number, {.call = call, .spec = spec});
  }
  // As library and kernel do it.
  static void begin_in_stream(const GpuRank& rank, std::uint32_t number, std::uint32_t call,
                              std::uint64_t count) {
    note(rank, LaunchPath::InStream, number, call, all_reduce_of(count));
    __atomic_store_n(&doorbells(rank).in_stream_begun, number, __ATOMIC_RELEASE);
  }
  void start(GpuRank& rank, LaunchPath path, std::uint32_t call, std::uint64_t count) {
    const PlanId id = plan(rank, count);
    note(rank, path, rank.posted[static_cast<int>(path)] + 1, call, all_reduce_of(count));
    rank.start(id, path);
  }
  using GpuWorkerTest::start;
  // Long before any deadline, with both counts for people.
  void expect_mismatch(const std::vector<GpuRank*>& ranks, Rank culprit,
                       const std::string& counts) {
    const auto begin = std::chrono::steady_clock::now();
    for (const GpuRank* rank : ranks)
      expect_closed(*rank, ErrorCode::FailedPrecondition, Reason::Mismatch, culprit);
    EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(5));
    for (const CommunicatorSnapshot& shot : inspect().communicators)
      EXPECT_NE(shot.state.find(counts), std::string::npos) << shot.state;
    EXPECT_TRUE(eventually([&] {
      for (const FlightRecord& record : recorder_->snapshot())
        if (record.reason == Reason::Mismatch) return true;
      return false;
    }));
  }
  static void expect_open(const std::vector<GpuRank*>& ranks) {
    for (const GpuRank* rank : ranks)
      EXPECT_EQ(rank->closed(std::chrono::milliseconds(30)).code, 0);
  }
};

TEST_F(GpuPathMismatch, NoElementsInStreamAgainstManyLaunchedAreNamed) {
  const auto ranks = group(2);
  begin_in_stream(*ranks[0], 1, 1, 0);
  start(*ranks[1], LaunchPath::Launched, 1, kLarge);
  expect_mismatch(ranks, 1, "rank 1 and rank 0 differ: count 393216 and 0");
  expect_serving(kLarge);
}

TEST_F(GpuPathMismatch, OfThreeRanksTheTwoThatDifferAreNamedWhateverCameBefore) {
  const auto ranks = group(3);
  for (GpuRank* rank : ranks) {
    begin_in_stream(*rank, 7, 20, kSmall);
    start(*rank, LaunchPath::Launched, 21, kLarge);
  }
  for (const GpuRank* rank : ranks) ASSERT_TRUE(rank->wait(LaunchPath::Launched));
  start(*ranks[0], LaunchPath::Launched, 22, kLarge);
  start(*ranks[1], LaunchPath::Launched, 22, kLarge);
  begin_in_stream(*ranks[2], 8, 22, kSmall);
  expect_mismatch(ranks, 2, "rank 2 and rank 0 differ: count 64 and 393216");
}

TEST_F(GpuPathMismatch, ResidentAgainstLaunchedIsNamed) {
  see_ = {{}};
  const auto ranks = group(2);
  start(*ranks[0], LaunchPath::Resident, 1, kSmall);
  start(*ranks[1], LaunchPath::Launched, 1, kLarge);
  expect_mismatch(ranks, 1, "rank 1 and rank 0 differ: count 393216 and 64");
}

TEST_F(GpuPathMismatch, InStreamAgainstResidentIsNamed) {
  const auto ranks = group(2);
  begin_in_stream(*ranks[0], 1, 1, kSmall);
  note(*ranks[1], LaunchPath::Resident, 1, 1, all_reduce_of(kSmall, DType::Int32));
  __atomic_store_n(&doorbells(*ranks[1]).resident_posted, 1u, __ATOMIC_RELEASE);
  expect_mismatch(ranks, 1, "rank 1 and rank 0 differ: dtype int32 and float32");
}

// On another stream a rank may begin what comes later before what comes first.
TEST_F(GpuPathMismatch, OperationsOnSeveralStreamsMayBeginInAnyOrder) {
  const auto ranks = group(2);
  start(*ranks[1], LaunchPath::Launched, 1, kLarge);
  begin_in_stream(*ranks[0], 1, 2, kSmall);
  expect_open(ranks);
  start(*ranks[0], LaunchPath::Launched, 1, kLarge);
  for (const GpuRank* rank : ranks) EXPECT_TRUE(rank->wait(LaunchPath::Launched));
  begin_in_stream(*ranks[1], 1, 2, kSmall);
  expect_open(ranks);
}

TEST_F(GpuPathMismatch, NothingIsConcludedOfCallsThatNobodyWroteDownOrThatMakeNoSense) {
  const auto ranks = group(2);
  start(*ranks[1], LaunchPath::Launched, 1, kLarge);
  __atomic_store_n(&doorbells(*ranks[0]).in_stream_begun, 1u, __ATOMIC_RELEASE);
  expect_open(ranks);
  note(*ranks[0], LaunchPath::InStream, 1 + kCallNotes, 1, all_reduce_of(0));  // another one's
  expect_open(ranks);
  note(*ranks[0], LaunchPath::InStream, 1, 1,
       {.send_count = 3, .recv_count = 3, .dtype = static_cast<DType>(200)});
  expect_open(ranks);
  note(*ranks[0], LaunchPath::InStream, 1, 1, all_reduce_of(kLarge));  // a lie: it is the same
  expect_open(ranks);
}

}  // namespace
}  // namespace arcomm::test
