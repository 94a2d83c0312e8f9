// AllReduce by copy engines on queues whose streams get on in any order that their events allow: a
// chunk that nothing holds back is overtaken here.
#include "daemon/exec/gpu/copy_operation.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "daemon/exec/gpu/copy_shape.h"
#include "tests/unit/daemon/exec/gpu/fakes/sparse_memory.h"

namespace arcomm::test {
namespace {

using Kind = QueueStream::Kind;

constexpr std::uint32_t kMostBlocks = 7;  // of a kernel, as the calls say

struct ShuffledNode {
  // By rank and kind.
  std::map<std::pair<std::uint32_t, Kind>, std::deque<std::function<bool()>>> streams;
  std::map<std::uintptr_t, std::shared_ptr<bool>> events;
  std::map<std::pair<std::uint32_t, Kind>, std::uint64_t> entries;
  std::string order;     // of the calls
  int calls = 0;         // until now
  int failing_call = 0;  // none
  std::vector<std::uint32_t> told;
  std::mt19937 random{20261123};

  void put(std::uint32_t rank, Kind kind, std::function<bool()> act) {
    ++entries[{rank, kind}];
    streams[{rank, kind}].push_back(std::move(act));
  }
  Status called(const std::string& what, std::uint32_t rank, Kind kind = Kind::Launches) {
    order += what + std::to_string(rank) + (kind == Kind::Copies ? "c " : " ");
    if (++calls == failing_call) return error(ErrorCode::Internal, Reason::None, "no ", what);
    return {};
  }
  // Until all streams are empty; false: what is left waits for ever.
  bool run() {
    std::vector<std::deque<std::function<bool()>>*> all;
    for (auto& [key, stream] : streams) all.push_back(&stream);
    while (true) {
      std::shuffle(all.begin(), all.end(), random);
      const auto runs = std::find_if(
          all.begin(), all.end(), [](const auto* one) { return !one->empty() && one->front()(); });
      if (runs != all.end()) {
        (*runs)->pop_front();
        continue;
      }
      return std::all_of(all.begin(), all.end(), [](const auto* one) { return one->empty(); });
    }
  }
};

// Sums of 32-bit integers, in the one queue of one rank.
class ShuffledQueues final : public GpuQueues {
 public:
  ShuffledQueues(ShuffledNode& node, std::uint32_t rank) : node_(node), rank_(rank) {}

  Status launch(std::uint32_t, std::uint32_t, CudaAlgorithm algorithm,
                const CudaAllReduce& call) override {
    EXPECT_EQ(algorithm, CudaAlgorithm::CopyEngine);
    EXPECT_EQ(call.count, 0U);
    ARC_RETURN_IF_ERROR(node_.called("end", rank_));
    node_.put(rank_, Kind::Launches, [this] {
      node_.told.push_back(rank_);
      return true;
    });
    return {};
  }
  Result<QueueEvent> record(QueueStream stream) override {
    ARC_RETURN_IF_ERROR(node_.called("record", rank_, stream.kind));
    auto happened = std::make_shared<bool>(false);
    const std::uintptr_t id = node_.events.size() + 1;
    node_.events[id] = happened;
    node_.put(rank_, stream.kind, [happened] { return *happened = true; });
    return QueueEvent{id};
  }
  Status wait(QueueStream stream, QueueEvent event) override {
    ARC_RETURN_IF_ERROR(node_.called("wait", rank_, stream.kind));
    node_.put(rank_, stream.kind, [happened = node_.events.at(event.id)] { return *happened; });
    return {};
  }
  Status copy(std::uint32_t, void* to, const void* from, std::uint64_t bytes) override {
    ARC_RETURN_IF_ERROR(node_.called("copy", rank_, Kind::Copies));
    node_.put(rank_, Kind::Copies, [=] {
      std::memcpy(to, from, bytes);
      return true;
    });
    return {};
  }
  Status combine(std::uint32_t, std::uint32_t, const CombineCall& call) override {
    ARC_RETURN_IF_ERROR(node_.called("combine", rank_));
    EXPECT_EQ(call.most_blocks, kMostBlocks);
    node_.put(rank_, Kind::Launches, [call] {
      for (std::uint64_t i = 0; i < call.count; ++i) {
        std::uint32_t sum = 0;
        for (std::uint32_t rank = 0; rank < call.ranks; ++rank)
          sum += static_cast<const std::uint32_t*>(call.parts[rank])[i];
        static_cast<std::uint32_t*>(call.out)[i] = sum;
      }
      return true;
    });
    return {};
  }

 private:
  ShuffledNode& node_;
  std::uint32_t rank_;
};

class CopyOperations : public testing::TestWithParam<std::uint32_t> {
 protected:
  static constexpr std::uint64_t kMostCount = 4000;
  static constexpr std::uint32_t kPoison = 0xa5a5a5a5;
  using Values = std::vector<std::uint32_t>;

  void SetUp() override {
    for (std::uint32_t rank = 0; rank < ranks(); ++rank) {
      queues_.push_back(std::make_unique<ShuffledQueues>(node_, rank));
      scratch_.push_back(SparseMemory::create(cuda_scratch_bytes(ranks())).value());
      send_.emplace_back(kMostCount + 1);  // and a guard
      recv_.emplace_back(kMostCount + 1);
    }
  }

  static std::uint32_t ranks() { return GetParam(); }
  void fill() {
    for (std::uint32_t rank = 0; rank < ranks(); ++rank) {
      for (std::uint32_t& value : send_[rank]) value = static_cast<std::uint32_t>(node_.random());
      std::fill(recv_[rank].begin(), recv_[rank].end(), kPoison);
    }
  }
  // in_place: a bit for each rank. back: from recv into send.
  std::vector<CudaAllReduce> calls(std::uint64_t count, std::uint32_t in_place, bool back = false) {
    std::vector<CudaAllReduce> made(ranks());
    for (std::uint32_t rank = 0; rank < ranks(); ++rank) {
      CudaAllReduce& call = made[rank];
      call.most_blocks = kMostBlocks;
      call.count = count;
      call.rank = rank;
      call.ranks = ranks();
      call.dtype = DType::Uint32;
      for (std::uint32_t other = 0; other < ranks(); ++other) {
        Values& from = back ? recv_[other] : send_[other];
        Values& to = back ? send_[other] : recv_[other];
        call.send[other] = from.data();
        call.recv[other] = (in_place >> other & 1) != 0 ? from.data() : to.data();
        call.scratch[other] = scratch_[other].data();
      }
    }
    return made;
  }
  Status launch(const std::vector<CudaAllReduce>& calls, std::uint64_t most_chunk_bytes) {
    std::vector<CopyPart> parts;
    for (std::uint32_t rank = 0; rank < calls.size(); ++rank)
      parts.push_back({.queues = queues_[rank].get(), .queue = 1, .call = &calls[rank]});
    return launch_by_copy_engines(parts, 0, most_chunk_bytes);
  }
  // Of the first `count` elements of each rank's input.
  Values sums(std::uint64_t count) const {
    Values sums(count);
    for (const Values& one : send_) {
      for (std::uint64_t i = 0; i < count; ++i) sums[i] += one[i];
    }
    return sums;
  }
  std::uint32_t all() const { return (1U << ranks()) - 1; }

  ShuffledNode node_;
  std::vector<std::unique_ptr<ShuffledQueues>> queues_;
  std::vector<Memory> scratch_;
  std::vector<Values> send_, recv_;  // by rank
};

TEST_P(CopyOperations, GiveTheSumInAnyOrderThatTheirEventsAllow) {
  for (int trial = 0; trial < 60; ++trial) {
    for (const std::uint32_t in_place : {0U, 1U, all()}) {
      const std::uint64_t count = 1 + node_.random() % kMostCount;
      const std::uint64_t chunk = 64 * (1 + node_.random() % 20);
      fill();
      const Values expected = sums(count), sent = send_[ranks() - 1];
      ASSERT_TRUE(launch(calls(count, in_place), chunk));
      ASSERT_TRUE(node_.run());
      for (std::uint32_t rank = 0; rank < ranks(); ++rank) {
        const Values& out = (in_place >> rank & 1) != 0 ? send_[rank] : recv_[rank];
        ASSERT_TRUE(std::equal(expected.begin(), expected.end(), out.begin()))
            << "rank " << rank << ", " << count << " elements, chunks of " << chunk << ", in place "
            << in_place;
        ASSERT_TRUE(std::all_of(recv_[rank].begin() + static_cast<std::ptrdiff_t>(count),
                                recv_[rank].end(), [](auto value) { return value == kPoison; }));
      }
      if (in_place != all()) {
        ASSERT_EQ(send_[ranks() - 1], sent);
      }
      ASSERT_EQ(node_.told.size(), ranks());
      node_.told.clear();
    }
  }
}

// Each result is the next one's input, and nobody waits between.
TEST_P(CopyOperations, DoNotOvertakeEachOther) {
  for (int trial = 0; trial < 30; ++trial) {
    const std::uint64_t count = kMostCount - node_.random() % 500;
    fill();
    Values expected = sums(count);
    bool in_recv = false;
    for (int times = 0; times < 6; ++times) {
      const bool in_place = node_.random() % 3 == 0;
      ASSERT_TRUE(launch(calls(count, in_place ? all() : 0, in_recv), 64 * (3 + trial)));
      if (!in_place) in_recv = !in_recv;
      if (times == 0) continue;
      for (std::uint32_t& value : expected) value *= ranks();
    }
    ASSERT_TRUE(node_.run());
    for (std::uint32_t rank = 0; rank < ranks(); ++rank) {
      const Values& out = in_recv ? recv_[rank] : send_[rank];
      ASSERT_TRUE(std::equal(expected.begin(), expected.end(), out.begin())) << "rank " << rank;
    }
  }
}

// max_copy_engine_bytes() reckons with it.
TEST_P(CopyOperations, PutNoMoreIntoAStreamOfCopiesThanTheLargestIsReckonedWith) {
  for (const std::uint32_t in_place : {0U, all()}) {
    node_.entries.clear();
    ASSERT_TRUE(launch(calls(kMostCount, in_place), 64));
    const CopyShape shape = copy_shape(kMostCount, DType::Uint32, ranks(), in_place != 0, 64);
    for (std::uint32_t rank = 0; rank < ranks(); ++rank) {
      EXPECT_LE((node_.entries[{rank, Kind::Copies}]),
                ranks() + shape.all_chunks() * copy_entries(ranks()) + 1);
    }
    ASSERT_TRUE(node_.run());
  }
}

// Whichever call it is that fails.
TEST_P(CopyOperations, AfterAnErrorWhatWasBegunEndsAndNotAllAreTold) {
  const std::uint64_t count = 64 * ranks() + 3;
  ASSERT_TRUE(launch(calls(count, 0), 64));
  ASSERT_TRUE(node_.run());
  const int calls_of_all = node_.calls;
  for (int failing = 1; failing <= calls_of_all; ++failing) {
    node_.told.clear();
    node_.calls = 0;
    node_.failing_call = failing;
    const Status launched = launch(calls(count, 0), 64);
    ASSERT_FALSE(launched) << failing;
    EXPECT_EQ(launched.error().code, ErrorCode::Internal);
    ASSERT_TRUE(node_.run()) << failing;
    EXPECT_LT(node_.told.size(), ranks());
    node_.failing_call = 0;
  }
  // The queues serve as before.
  fill();
  const Values expected = sums(count);
  ASSERT_TRUE(launch(calls(count, 0), 64));
  ASSERT_TRUE(node_.run());
  EXPECT_TRUE(std::equal(expected.begin(), expected.end(), recv_[0].begin()));
}

INSTANTIATE_TEST_SUITE_P(Ranks, CopyOperations, testing::Values(2U, 3U, 4U, 8U));

class TwoRanksByCopies : public CopyOperations {};

TEST_P(TwoRanksByCopies, SendAChunkCombineItAndOnlyThenBringTheResultOfTheOneBefore) {
  ASSERT_TRUE(launch(calls(64, 0), 64));  // two chunks of each shard
  EXPECT_EQ(node_.order,
            "record0 record1 wait0c wait0c wait1c wait1c "
            "copy0c record0c copy1c record1c "
            "wait0 combine0 record0 wait1 combine1 record1 "
            "copy0c record0c copy1c record1c "
            "wait0 combine0 record0 wait1 combine1 record1 "
            "wait0c wait0c copy0c wait1c wait1c copy1c "
            "wait0c wait0c copy0c wait1c wait1c copy1c "
            "record0c wait0 wait1 record1c wait0 wait1 "
            "end0 end1 ");
}

TEST_P(TwoRanksByCopies, OfNoElementsAreOnlyTold) {
  ASSERT_TRUE(launch(calls(0, 0), 0));
  EXPECT_EQ(node_.order, "end0 end1 ");
}

TEST_P(TwoRanksByCopies, AreRefusedWithoutAllParts) {
  std::vector<CudaAllReduce> made = calls(64, 0);
  made.pop_back();
  const Status refused = launch(made, 0);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::InvalidArgument);
  EXPECT_EQ(node_.order, "");
}

TEST_P(TwoRanksByCopies, SayWhoseCallFailed) {
  node_.failing_call = 2;
  const Status launched = launch(calls(64, 0), 0);
  ASSERT_FALSE(launched);
  EXPECT_EQ(launched.error().message, "copy_engine, rank 1: no record");
}

INSTANTIATE_TEST_SUITE_P(Ranks, TwoRanksByCopies, testing::Values(2U));

}  // namespace
}  // namespace arcomm::test
