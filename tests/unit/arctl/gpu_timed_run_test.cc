// The timed run of one rank over a GPU that is host memory, with libraries that reduce rightly and
// wrongly: what is timed, and that nothing wrong goes unseen.
#include <gmock/gmock.h>

#include <cstring>
#include <list>

#include "client/arctl/gpu/batches.h"
#include "client/arctl/gpu/timed_run.h"

namespace arcomm::arctl {
namespace {

using ::testing::HasSubstr;

using Work = std::function<void()>;

class FakeGraph final : public GpuGraph {
 public:
  FakeGraph(std::vector<Work> work, int& launches) : work_(std::move(work)), launches_(launches) {}
  Status launch() override {
    ++launches_;
    for (const Work& work : work_) work();
    return {};
  }

 private:
  std::vector<Work> work_;
  int& launches_;
};

// The stream does at once what is put on it.
class FakeDevice final : public GpuDevice {
 public:
  std::string name() const override { return "a fake"; }
  int driver_version() const override { return 13000; }
  void* stream() const override { return nullptr; }
  Result<std::byte*> allocate(std::uint64_t bytes) override {
    return memory_.emplace_back(bytes).data();
  }
  Result<std::byte*> allocate_pinned(std::uint64_t bytes) override { return allocate(bytes); }
  Status fill(std::byte* to, unsigned char value, std::uint64_t bytes) override {
    return enqueue([=] { std::memset(to, value, bytes); });
  }
  Status upload(std::byte* to, const std::byte* from, std::uint64_t bytes) override {
    return enqueue([=] { std::memcpy(to, from, bytes); });
  }
  Status copy(std::byte* to, const std::byte* from, std::uint64_t bytes) override {
    return upload(to, from, bytes);
  }
  Status download(std::byte* to, const std::byte* from, std::uint64_t bytes) override {
    return upload(to, from, bytes);
  }
  Status record(Mark mark) override {
    (mark == Mark::Begin ? begin_ : end_) = Clock::now();
    return {};
  }
  Result<double> between_us() override {
    return std::chrono::duration<double, std::micro>(end_ - begin_).count();
  }
  Result<std::unique_ptr<GpuGraph>> capture(const std::function<Status()>& work) override {
    capturing_.emplace();
    ARC_RETURN_IF_ERROR(work());
    std::unique_ptr<GpuGraph> graph = std::make_unique<FakeGraph>(std::move(*capturing_), launches);
    capturing_.reset();
    return graph;
  }
  Status wait(Clock::time_point deadline) override {
    if (deadline < busy_until)
      return error(ErrorCode::DeadlineExceeded, Reason::Timeout, "the stream is late");
    busy_until = {};
    return {};
  }
  Result<std::unique_ptr<GpuPeerCopy>> peer_copy(int, std::uint64_t) override {
    return error(ErrorCode::Unimplemented, Reason::Unsupported, "a fake has no neighbour");
  }

  Status enqueue(Work work) {
    if (capturing_) {
      capturing_->push_back(std::move(work));
    } else {
      work();
    }
    return {};
  }

  int launches = 0;                // of graphs
  Clock::time_point busy_until{};  // as far as waits go: no time passes here

 private:
  std::list<std::vector<std::byte>> memory_;
  std::optional<std::vector<Work>> capturing_;
  Clock::time_point begin_, end_;
};

// A sum of one rank, and what a defect makes of it.
class FakeContender final : public GpuContender {
 public:
  using Defect = std::function<void(std::byte* recv, std::uint64_t bytes)>;

  FakeContender(FakeDevice& device, std::uint64_t most, Defect defect)
      : device_(device), defect_(std::move(defect)) {
    buffers_.send = *device.allocate(most + kSlackBytes);
    buffers_.recv = *device.allocate(most + kSlackBytes);
  }
  GpuBuffers buffers() const override { return buffers_; }
  Status all_reduce(const std::byte* send, std::byte* recv, std::uint64_t count, DType dtype,
                    ReduceOp, Codec) override {
    const std::uint64_t bytes = count * size_of(dtype);
    return device_.enqueue([=, this] {
      ++operations_;
      std::memmove(recv, send, bytes);
      if (defect_) defect_(recv, bytes);
    });
  }
  Status meet() override { return {}; }
  Status outcome() override { return outcome_; }

  void fail(Error failure) { outcome_ = std::move(failure); }
  int operations() const { return operations_; }

 private:
  FakeDevice& device_;
  Defect defect_;
  GpuBuffers buffers_;
  Status outcome_;
  int operations_ = 0;
};

class GpuTimedRun : public ::testing::Test {
 protected:
  static constexpr std::uint64_t kMost = 8 << 20;

  void SetUp() override {
    Result<RankBoard> board = RankBoard::create(1);
    ASSERT_TRUE(board.ok());
    board_.emplace(std::move(*board));
    board_->page().timeout_ms = 10'000;
    Result<TimedRun> timed = TimedRun::create(*board_, 0, device_);
    ASSERT_TRUE(timed.ok());
    timed_.emplace(std::move(*timed));
  }
  BenchCase of(std::uint64_t count, Timing timing = Timing::CudaEvents) const {
    BenchCase what;
    what.count = count;
    what.timing = timing;
    what.warmup = 10;
    what.iterations = 20;
    what.rounds = 3;
    return what;
  }
  const RankSlot& slot() const { return board_->page().slots[0]; }

  FakeDevice device_;
  std::optional<RankBoard> board_;
  std::optional<TimedRun> timed_;
};

TEST_F(GpuTimedRun, TimesEveryBatchOnAStreamAndInAGraph) {
  for (const bool in_graph : {false, true}) {
    FakeContender contender(device_, kMost, nullptr);
    BenchCase what = of(2 * kPeriod - 3);
    what.in_graph = in_graph;
    ASSERT_TRUE(timed_->run(what, contender).ok());
    EXPECT_EQ(contender.operations(), 10 + 3 * 20);
    EXPECT_EQ(slot().wrong, 0u) << slot().note;
    EXPECT_EQ(slot().checked_bytes, what.bytes());
  }
  EXPECT_EQ(slot().samples, 6u) << "the worker resets it for each case";
}

TEST_F(GpuTimedRun, TimesEveryCallOnItsOwnForLatency) {
  FakeContender contender(device_, kMost, nullptr);
  BenchCase what = of(1000, Timing::Each);
  what.in_graph = true;
  ASSERT_TRUE(timed_->run(what, contender).ok());
  EXPECT_EQ(slot().samples, 60u);
  EXPECT_EQ(contender.operations(), 10 + 3 * 20) << "graphs of one";
}

TEST_F(GpuTimedRun, TakesOneSampleForEachBatchOfThroughput) {
  FakeContender contender(device_, kMost, nullptr);
  ASSERT_TRUE(timed_->run(of(1000, Timing::Throughput), contender).ok());
  EXPECT_EQ(slot().samples, 3u);
  EXPECT_GT(board_->samples_of(0)[0], 0);
}

TEST_F(GpuTimedRun, CountsWrongElementsOfEveryBatchAndNamesTheFirst) {
  FakeContender contender(device_, kMost, [](std::byte* recv, std::uint64_t bytes) {
    recv[bytes - 4] ^= std::byte{1};
  });
  ASSERT_TRUE(timed_->run(of(1000), contender).ok());
  EXPECT_EQ(slot().wrong, 3u);
  EXPECT_THAT(slot().note, HasSubstr("arcommd on a stream, batch 1: element 999 is "));
}

TEST_F(GpuTimedRun, SeesWhatIsTouchedBehindTheResult) {
  FakeContender contender(device_, kMost,
                          [](std::byte* recv, std::uint64_t bytes) { recv[bytes] = std::byte{0}; });
  ASSERT_TRUE(timed_->run(of(1000), contender).ok());
  EXPECT_EQ(slot().wrong, 3u);
  EXPECT_THAT(slot().note, HasSubstr("behind it was touched"));
}

TEST_F(GpuTimedRun, SeesAResultThatNobodyWrote) {
  FakeContender contender(
      device_, kMost, [](std::byte* recv, std::uint64_t bytes) { std::memset(recv, 0xff, bytes); });
  ASSERT_TRUE(timed_->run(of(500), contender).ok());
  EXPECT_EQ(slot().wrong, 3 * 500u);
}

TEST_F(GpuTimedRun, ChecksSumsInPlaceOnceOnRealInputsTheWayTheyWereTimed) {
  for (const bool in_graph : {false, true}) {
    int calls = 0;
    FakeContender right(device_, kMost, nullptr),
        wrong(device_, kMost, [&](std::byte*recv, std::uint64_t) {
          // All that was timed was right: zeros.
          if (++calls > 10 + 3 * 20) recv[0] ^= std::byte{1};
        });
    BenchCase what = of(1000);
    what.in_place = true;
    what.in_graph = in_graph;
    board_->page().slots[0].wrong = 0;
    device_.launches = 0;
    ASSERT_TRUE(timed_->run(what, right).ok());
    EXPECT_EQ(slot().wrong, 0u) << slot().note;
    EXPECT_EQ(right.operations(), 10 + 3 * 20 + 1);
    EXPECT_EQ(device_.launches, in_graph ? 1 + 3 * 2 + 1 : 0);
    ASSERT_TRUE(timed_->run(what, wrong).ok());
    EXPECT_EQ(slot().wrong, 1u);
    EXPECT_THAT(slot().note, HasSubstr(in_graph ? "in a graph, once in place" : "on a stream"));
  }
}

// 12 s for whatever it is, and 20 s more for so many.
TEST_F(GpuTimedRun, WaitsLongerForManyOperationsAndSaysMeanwhileThatItLives) {
  FakeContender contender(device_, kMost, [&](std::byte*, std::uint64_t) {
    device_.busy_until = GpuDevice::Clock::now() + std::chrono::seconds(30);
  });
  BenchCase what = of(10);
  what.warmup = 0;
  what.rounds = 1;
  what.iterations = 20'000;
  const std::uint64_t beats = slot().heartbeat.load();
  EXPECT_TRUE(timed_->run(what, contender).ok());
  EXPECT_GT(slot().heartbeat.load(), beats + 50);
  what.iterations = 20;
  const Status late = timed_->run(what, contender);
  ASSERT_FALSE(late.ok());
  EXPECT_EQ(late.error().reason, Reason::Timeout);
}

TEST_F(GpuTimedRun, EndsWithTheLibrarysOwnError) {
  FakeContender contender(device_, kMost, nullptr);
  contender.fail(error(ErrorCode::Aborted, Reason::RemoteDied, "rank 1 died"));
  const Status run = timed_->run(of(1000), contender);
  ASSERT_FALSE(run.ok());
  EXPECT_EQ(run.error().message, "rank 1 died");
}

}  // namespace
}  // namespace arcomm::arctl
