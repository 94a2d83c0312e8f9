// Tuning on GPUs: which kernels are measured on which sets, and that clients come first.
#include <optional>
#include <set>
#include <tuple>

#include "daemon/exec/tune/gpu_tuner.h"
#include "tests/unit/daemon/exec/gpu/gpu_fixture.h"

namespace arcomm::test {
namespace {

constexpr std::uint64_t kMostBytes = std::uint64_t{16} << 10;  // 1, 4 and 16 KB

class GpuMeasure : public GpuWorkerTest {
 protected:
  Result<GpuTuningTable> tune(std::uint32_t gpus, const GpuTuneProgress& progress = {}) {
    return tune_gpus(*worker_, gpus, {.max_bytes = kMostBytes}, progress);
  }
  Result<std::uint64_t> begin(std::uint32_t ranks, std::uint64_t room_bytes) {
    return await<std::uint64_t>(
        [&](auto done) { worker_->begin_measuring(ranks, room_bytes, done); });
  }
};

TEST_F(GpuMeasure, EveryKernelIsMeasuredOnEverySetAndNoMemoryIsKept) {
  double last = 0;
  const Result<GpuTuningTable> table = tune(3, [&](const GpuTuneStep& step) {
    EXPECT_GT(step.point.microseconds, 0);
    EXPECT_GE(step.progress, last);
    last = step.progress;
    return true;
  });
  ASSERT_TRUE(table.ok()) << table.error().to_string();
  std::set<std::tuple<std::uint32_t, std::uint64_t, std::optional<CudaAlgorithm>>> seen, wanted;
  for (const GpuTuningPoint& point : table->points)
    seen.emplace(point.ranks, point.bytes, point.algorithm);
  std::set<CudaAlgorithm> kernels;
  for (const CudaAlgorithmEntry& entry : cuda_algorithms()) {
    for (const std::uint32_t ranks : {2u, 3u}) {
      for (std::uint64_t bytes = 1024; bytes <= kMostBytes; bytes *= 4) {
        if (bytes < entry.sensible_from || !can_launch(entry.algorithm, bytes, ranks)) continue;
        wanted.emplace(ranks, bytes, entry.algorithm);
        kernels.insert(entry.algorithm);
      }
    }
  }
  EXPECT_EQ(seen, wanted);
  EXPECT_EQ(node_.algorithms(), kernels);
  EXPECT_EQ(last, 1.0);
  EXPECT_NE(table->find(2, 1024), nullptr);
  EXPECT_TRUE(eventually([&] { return node_.memories == 0; }));
  expect_serving(kLarge);
}

TEST_F(GpuMeasure, ItIsRefusedWhileACommunicatorExists) {
  const auto ranks = group(2);
  const Result<GpuTuningTable> table = tune(3);
  ASSERT_FALSE(table.ok());
  EXPECT_EQ(table.error().code, ErrorCode::FailedPrecondition);
  EXPECT_NE(table.error().message.find("arctl comms"), std::string::npos);
  EXPECT_EQ(node_.sums, 0);
}

TEST_F(GpuMeasure, CommunicatorThatIsFormedMeanwhileEndsIt) {
  int points = 0;
  const Result<GpuTuningTable> table = tune(3, [&](const GpuTuneStep&) {
    if (++points == 2) expect_serving(kLarge, 5);
    return true;
  });
  ASSERT_FALSE(table.ok());
  EXPECT_EQ(table.error().code, ErrorCode::FailedPrecondition);
  EXPECT_EQ(points, 2);
  expect_serving(kSmall);
}

TEST_F(GpuMeasure, ItStopsWhenItIsToldTo) {
  const Result<GpuTuningTable> table = tune(3, [](const GpuTuneStep&) { return false; });
  ASSERT_TRUE(table.ok()) << table.error().to_string();
  EXPECT_EQ(table->points.size(), 1u);
  EXPECT_TRUE(eventually([&] { return node_.memories == 0; }));
}

TEST_F(GpuMeasure, KernelThatHangsIsLeftOut) {
  node_.hangs = static_cast<int>(CudaAlgorithm::Stream);
  const Result<GpuTuningTable> table = tune(2);
  ASSERT_TRUE(table.ok()) << table.error().to_string();
  int others = 0;
  for (const GpuTuningPoint& point : table->points) {
    EXPECT_NE(point.algorithm, CudaAlgorithm::Stream);
    others += point.algorithm == CudaAlgorithm::TwoShot ? 1 : 0;
  }
  EXPECT_EQ(others, 3);
  EXPECT_TRUE(eventually([&] { return node_.memories == 0; }));
}

// It was timed and chosen: on GPUs whose driver compiled bulk copies to nothing it was the fastest.
TEST_F(GpuMeasure, KernelWhoseSumsAreWrongIsInNoPointOfTheTable) {
  node_.wrong = static_cast<int>(CudaAlgorithm::TwoShot);
  node_.wrong_from = kMostBytes;  // the smaller ones were right
  const Result<GpuTuningTable> table = tune(3);
  ASSERT_TRUE(table.ok()) << table.error().to_string();
  EXPECT_FALSE(table->points.empty());
  for (const GpuTuningPoint& point : table->points)
    EXPECT_NE(point.algorithm, CudaAlgorithm::TwoShot) << point.ranks << " " << point.bytes;
  EXPECT_TRUE(eventually([&] { return node_.memories == 0; }));
}

TEST_F(GpuMeasure, WrongSumsAreNamed) {
  node_.wrong = static_cast<int>(CudaAlgorithm::TwoShot);
  ASSERT_TRUE(begin(2, 1024).ok());
  const Result<double> took = await<double>([&](auto done) {
    worker_->measure({CudaAlgorithm::TwoShot, 1024}, done);
  });
  ASSERT_FALSE(took.ok());
  EXPECT_EQ(took.error().code, ErrorCode::DataLoss);
  EXPECT_NE(took.error().message.find("two_shot of 1024 bytes"), std::string::npos)
      << took.error().message;
}

TEST_F(GpuMeasure, KernelsOfWholeLinesAreLeftOutWhereLinesTear) {
  finish();
  node_.torn = {{0, 1}};
  start(Settings{});
  const Result<GpuTuningTable> table = tune(2);
  ASSERT_TRUE(table.ok()) << table.error().to_string();
  EXPECT_FALSE(table->points.empty());
  for (const GpuTuningPoint& point : table->points)
    EXPECT_FALSE(entry_of(point.algorithm.value()).needs_atomic_128b_stores)
        << name_of(point.algorithm);
}

class InStreamMeasure : public GpuMeasure {
 protected:
  InStreamMeasure() { node_.in_stream_image.resize(1000); }
};

TEST_F(InStreamMeasure, WhatClientsLaunchIsMeasuredBesideTheRest) {
  const Result<GpuTuningTable> table = tune(3);
  ASSERT_TRUE(table.ok()) << table.error().to_string();
  std::set<std::pair<std::uint32_t, std::uint64_t>> seen;
  for (const GpuTuningPoint& point : table->points) {
    if (!point.algorithm) seen.emplace(point.ranks, point.bytes);
  }
  EXPECT_EQ(seen.size(), 2u * 3);
  EXPECT_GT(node_.in_stream, 0);
  EXPECT_EQ(table->in_stream_bounds.size(), 2u);
  EXPECT_TRUE(eventually([&] { return node_.memories == 0; }));
}

TEST_F(InStreamMeasure, IsLeftOutWhereItIsOff) {
  Settings settings;
  settings.gpu.in_stream = false;
  start(settings);
  const Result<GpuTuningTable> table = tune(2);
  ASSERT_TRUE(table.ok()) << table.error().to_string();
  for (const GpuTuningPoint& point : table->points) EXPECT_TRUE(point.algorithm.has_value());
  EXPECT_EQ(node_.in_stream, 0);
  EXPECT_EQ(table->most_in_stream_bytes(2), kUnlimitedInStreamBytes);
}

TEST_F(InStreamMeasure, IsLeftOutWhereItsSumsAreWrong) {
  node_.in_stream_wrong = true;
  const Result<GpuTuningTable> table = tune(2);
  ASSERT_TRUE(table.ok()) << table.error().to_string();
  EXPECT_FALSE(table->points.empty());
  for (const GpuTuningPoint& point : table->points) EXPECT_TRUE(point.algorithm.has_value());
}

TEST_F(InStreamMeasure, IsLeftOutWhereItFails) {
  node_.in_stream_fails = true;
  const Result<GpuTuningTable> table = tune(2);
  ASSERT_TRUE(table.ok()) << table.error().to_string();
  EXPECT_FALSE(table->points.empty());
  for (const GpuTuningPoint& point : table->points) EXPECT_TRUE(point.algorithm.has_value());
  EXPECT_TRUE(eventually([&] { return node_.memories == 0; }));
}

TEST_F(GpuMeasure, SizesThatDoNotFitAreNotMeasured) {
  node_.most_bytes = 300ull << 20;
  const Result<std::uint64_t> room = begin(2, 1ull << 30);
  ASSERT_TRUE(room.ok()) << room.error().to_string();
  EXPECT_EQ(*room, 256ull << 20);
  const Result<double> too_large = await<double>([&](auto done) {
    worker_->measure({CudaAlgorithm::Stream, 1ull << 30}, done);
  });
  ASSERT_FALSE(too_large.ok());
  EXPECT_EQ(too_large.error().code, ErrorCode::OutOfRange);
  // Many of one that is launched for all ranks at once, which is many entries, are not.
  const int joint = node_.by_copies;
  const Result<double> took = await<double>([&](auto done) {
    worker_->measure({CudaAlgorithm::CopyEngine, 1024}, done);
  });
  EXPECT_TRUE(took.ok());
  EXPECT_GT(node_.by_copies, joint);
  EXPECT_LE(node_.by_copies, joint + 3 + 2 + 5 * 8);
  node_.most_bytes = 1024;  // not even the scratch
  EXPECT_FALSE(begin(2, 1024).ok());
  EXPECT_TRUE(eventually([&] { return node_.memories == 0; }));
}

TEST_F(GpuMeasure, MeasuringWithoutABeginningIsRefused) {
  const Result<double> took = await<double>([&](auto done) {
    worker_->measure({CudaAlgorithm::Stream, 1024}, done);
  });
  ASSERT_FALSE(took.ok());
  EXPECT_EQ(took.error().code, ErrorCode::FailedPrecondition);
  EXPECT_FALSE(begin(1, 1024).ok());
  EXPECT_FALSE(begin(4, 1024).ok());  // there are three
  EXPECT_FALSE(tune(1).ok());
}

TEST_F(GpuMeasure, GpuThatFailsMeanwhileEndsTheWorker) {
  ASSERT_TRUE(begin(2, 1024).ok());
  node_.sick = true;
  EXPECT_TRUE(eventually([&] { return ended_.load(); })) << "nothing would start a new daemon";
  node_.sick = false;  // what it keeps of a sick one only the process's end lets go
}

TEST_F(GpuMeasure, MemoryThatAClientAsksForEndsIt) {
  ASSERT_TRUE(begin(2, 1024).ok());
  rank(0, 4096);
  const Result<double> took = await<double>([&](auto done) {
    worker_->measure({CudaAlgorithm::Stream, 1024}, done);
  });
  ASSERT_FALSE(took.ok());
  EXPECT_EQ(took.error().code, ErrorCode::FailedPrecondition);
}

TEST_F(GpuMeasure, ShutdownMeanwhileLetsTheMemoryGo) {
  ASSERT_TRUE(begin(2, 1024).ok());
  finish();  // expects it
}

}  // namespace
}  // namespace arcomm::test
