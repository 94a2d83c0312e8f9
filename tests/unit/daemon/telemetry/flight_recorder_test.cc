#include "daemon/telemetry/flight_recorder.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <sstream>
#include <thread>
#include <vector>

#include "tests/unit/daemon/telemetry/temporary_folder.h"

namespace arcomm {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

std::unique_ptr<FlightRecorder> recorder_of(std::size_t records) {
  auto recorder = FlightRecorder::create(records);
  EXPECT_TRUE(recorder);
  return std::move(recorder).value();
}

TEST(FlightRecorder, GivesBackWhatWasWritten) {
  const auto recorder = recorder_of(16);
  FlightRecord record{.unique_id_prefix = 0x0807060504030201,
                      .epoch = 2,
                      .seq = 9,
                      .send_count = 1000,
                      .recv_count = 1000,
                      .submitted_ns = 10,
                      .rank = 3,
                      .pid = 4711,
                      .dtype = DType::BFloat16,
                      .op = ReduceOp::Max,
                      .algorithm = 2};
  recorder->write(record);
  EXPECT_EQ(record.number, 1u);
  ASSERT_EQ(recorder->snapshot().size(), 1u);
  EXPECT_THAT(to_json(recorder->snapshot()[0]),
              AllOf(HasSubstr("\"comm\":\"0102030405060708\""), HasSubstr("\"state\":\"open\""),
                    HasSubstr("\"collective\":\"all_reduce\",\"op\":\"max\",\"dtype\":\"bfloat16\""
                              ",\"codec\":\"none\",\"send_count\":1000,\"recv_count\":1000"),
                    HasSubstr("\"rank\":3,\"pid\":4711")));
  record.code = ErrorCode::DeadlineExceeded;
  record.reason = Reason::Timeout;
  record.culprit = 1;
  record.done_ns = 20;
  recorder->write(record);
  ASSERT_EQ(recorder->snapshot().size(), 1u) << "a second write brings the record up to date";
  EXPECT_THAT(to_json(recorder->snapshot()[0]),
              AllOf(HasSubstr("\"state\":\"done\",\"code\":\"DeadlineExceeded\""),
                    HasSubstr("\"reason\":\"Timeout\",\"culprit\":1")));
}

TEST(FlightRecorder, KeepsTheLastAndIgnoresUpdatesOfWhatItForgot) {
  const auto recorder = recorder_of(10);
  EXPECT_EQ(recorder->capacity(), 16u) << "rounded up to a power of two";
  FlightRecord first{.seq = 0};
  recorder->write(first);
  for (std::uint64_t seq = 1; seq < 40; ++seq) {
    FlightRecord record{.seq = seq};
    recorder->write(record);
  }
  first.done_ns = 1;
  recorder->write(first);
  const auto records = recorder->snapshot();
  ASSERT_EQ(records.size(), 16u);
  for (std::size_t i = 0; i < records.size(); ++i) EXPECT_EQ(records[i].seq, 24 + i);
  EXPECT_EQ(recorder->written(), 40u);
  const auto newest = recorder->snapshot(2);
  ASSERT_EQ(newest.size(), 2u);
  EXPECT_EQ(newest[1].seq, 39u);
}

TEST(FlightRecorder, OldestKeptRecordCanStillBeUpdated) {
  const auto recorder = recorder_of(16);
  FlightRecord first{.seq = 7};
  recorder->write(first);
  for (int i = 1; i < 16; ++i) {
    FlightRecord record;
    recorder->write(record);
  }
  first.done_ns = 5;
  recorder->write(first);
  EXPECT_EQ(recorder->snapshot().front().done_ns, 5u);
}

TEST(FlightRecorder, NeverShowsARecordHalfWritten) {
  const auto recorder = recorder_of(16);
  std::atomic<bool> is_done{false};
  std::atomic<std::uint64_t> seen{0};  // a reader that gets no core while it writes shows nothing
  std::thread writer([&] {
    for (std::uint64_t i = 1; i <= 200'000 || (seen == 0 && i <= 100'000'000); ++i) {
      FlightRecord record{.epoch = i, .seq = i, .send_count = i, .submitted_ns = i, .done_ns = i};
      recorder->write(record);
    }
    is_done = true;
  });
  while (!is_done) {
    for (const FlightRecord& record : recorder->snapshot()) {
      ++seen;
      ASSERT_EQ(record.epoch, record.number);
      ASSERT_EQ(record.seq, record.number);
      ASSERT_EQ(record.send_count, record.number);
      ASSERT_EQ(record.submitted_ns, record.number);
      ASSERT_EQ(record.done_ns, record.number);
    }
  }
  writer.join();
  EXPECT_GT(seen, 0u);
  EXPECT_EQ(recorder->snapshot().size(), 16u);
}

TEST(FlightRecorder, IsReadOverItsMemoryWhenItsWriterIsGone) {
  UniqueFd kept;
  {
    const auto recorder = FlightRecorder::create(16, 16).value();
    for (std::uint64_t seq = 0; seq < 18; ++seq) {
      NetworkSteps steps{.seq = seq, .sent_bytes = 4096};
      recorder->write(steps);
    }
    for (std::uint64_t seq = 0; seq < 20; ++seq) {
      FlightRecord record{.seq = seq, .pid = 4711};
      recorder->write(record);
    }
    kept = duplicate(recorder->memfd());
  }
  const auto log = FlightRecorder::read(kept.get());
  ASSERT_TRUE(log) << log.error().message;
  const std::vector<FlightRecord>& records = log->operations;
  ASSERT_EQ(records.size(), 16u);
  EXPECT_EQ(records.front().seq, 4u);
  EXPECT_EQ(records.back().seq, 19u);
  EXPECT_EQ(records.back().pid, 4711);
  EXPECT_EQ(records.back().done_ns, 0u) << "open when its writer went";
  ASSERT_EQ(log->network.size(), 16u);
  EXPECT_EQ(log->network.back().seq, 17u);
  EXPECT_EQ(log->network.back().sent_bytes, 4096u);
}

TEST(FlightRecorder, KeepsStepsBetweenNodesBesideTheOperationsTheyAreOf) {
  const auto recorder = FlightRecorder::create(16, 16).value();
  FlightRecord alone{.unique_id_prefix = 1, .epoch = 1, .seq = 5};
  FlightRecord spanning{.unique_id_prefix = 2, .epoch = 1, .seq = 5};
  recorder->write(alone);
  recorder->write(spanning);
  NetworkSteps steps{.unique_id_prefix = 2, .epoch = 1, .seq = 5, .posted_ns = 7, .nodes = 3};
  recorder->write(steps);
  steps.arrived_ns = 9;
  recorder->write(steps);
  const std::vector<NetworkSteps> kept = recorder->network_steps();
  ASSERT_EQ(kept.size(), 1u) << "a second write brings them up to date";
  const NetworkStepsIndex index(kept);
  EXPECT_EQ(index.find(alone), nullptr);
  ASSERT_NE(index.find(spanning), nullptr);
  EXPECT_EQ(index.find(spanning)->arrived_ns, 9u);
  std::ostringstream dumped;
  recorder->dump(dumped);
  EXPECT_THAT(dumped.str(), HasSubstr("\"done_ns\":0,\"network\":{\"nodes\":3,"));
  EXPECT_THAT(dumped.str(), HasSubstr("\"posted_ns\":7,\"sent_ns\":0,\"arrived_ns\":9,"));
}

TEST(FlightRecorder, HasNoMemoryForStepsBetweenNodesWhereThereAreNone) {
  const auto recorder = recorder_of(16);
  NetworkSteps steps{.seq = 5};
  recorder->write(steps);
  EXPECT_EQ(steps.number, 0u);
  EXPECT_TRUE(recorder->network_steps().empty());
}

TEST(FlightRecorder, ReadsNoMemoryThatIsNone) {
  const UniqueFd loose(::memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  EXPECT_FALSE(FlightRecorder::read(loose.get()));
  ASSERT_EQ(::fcntl(loose.get(), F_ADD_SEALS, F_SEAL_SHRINK), 0);
  EXPECT_FALSE(FlightRecorder::read(loose.get())) << "empty";
  ASSERT_EQ(::ftruncate(loose.get(), 1 << 16), 0);
  const auto refused = FlightRecorder::read(loose.get());
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().reason, Reason::Version);
  EXPECT_FALSE(FlightRecorder::read(-1));
  // One that claims more slots than it holds.
  const auto recorder = recorder_of(16);
  std::vector<char> header(4096);
  ASSERT_EQ(::pread(recorder->memfd(), header.data(), header.size(), 0), 4096);
  const std::uint64_t slots = 1 << 20;
  std::memcpy(header.data() + 16, &slots, sizeof(slots));
  ASSERT_EQ(::pwrite(loose.get(), header.data(), header.size(), 0), 4096);
  EXPECT_FALSE(FlightRecorder::read(loose.get()));
  // The same of steps between nodes: one slot less would fit.
  const std::uint64_t few = 16, too_many = 512;
  std::memcpy(header.data() + 16, &few, sizeof(few));
  std::memcpy(header.data() + 24, &too_many, sizeof(too_many));
  ASSERT_EQ(::pwrite(loose.get(), header.data(), header.size(), 0), 4096);
  EXPECT_FALSE(FlightRecorder::read(loose.get()));
}

TEST(FlightRecorder, LivesInMemoryThatNobodyCanShrink) {
  const auto recorder = recorder_of(16);
  EXPECT_EQ(::ftruncate(recorder->memfd(), 0), -1);
  struct stat status {};
  ASSERT_EQ(::fstat(recorder->memfd(), &status), 0);
  EXPECT_EQ(status.st_size, 4096 + 16 * 128);
}

TEST(FlightRecorder, DumpsJsonLinesIntoNumberedFiles) {
  const TemporaryFolder folder;
  const auto recorder = recorder_of(16);
  FlightRecord record{.seq = 1};
  recorder->write(record);
  const auto first = recorder->dump_to(folder.path());
  const auto second = recorder->dump_to(folder.path());
  ASSERT_TRUE(first) << first.error().to_string();
  ASSERT_TRUE(second) << second.error().to_string();
  EXPECT_NE(*first, *second);
  EXPECT_THAT(*first, StartsWith(folder.file("flight-" + std::to_string(::getpid()) + "-")));
  const std::string text = file_text(*first);
  EXPECT_THAT(text, StartsWith("{\"flight_recorder\":1,"));
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 2);
}

TEST(FlightRecorder, SaysWhereItCannotDump) {
  const TemporaryFolder folder;
  const auto dumped = recorder_of(16)->dump_to(folder.file("none"));
  ASSERT_FALSE(dumped);
  EXPECT_THAT(dumped.error().message, HasSubstr(folder.file("none")));
}

}  // namespace
}  // namespace arcomm
