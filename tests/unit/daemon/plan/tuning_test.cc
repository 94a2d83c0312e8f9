#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <string>

#include "daemon/exec/tune/tuner.h"
#include "daemon/plan/explain.h"
#include "daemon/plan/planner.h"
#include "daemon/plan/tuning/tuning_table.h"
#include "transport/device/host/host_device.h"

namespace arcomm {
namespace {

TuningTable sample() {
  TuningTable table;
  table.machine = "a \"machine\"";
  table.points = {
      {2, 1024, TypeClass::Plain, Algorithm::Inline, 0, 1.0},
      {2, 1024, TypeClass::Plain, Algorithm::Tiled, 65536, 3.0},
      {2, 65536, TypeClass::Plain, Algorithm::Inline, 0, 200.0},
      {2, 65536, TypeClass::Plain, Algorithm::Tiled, 65536, 125.0},
      {8, 1024, TypeClass::Plain, Algorithm::Tiled, 65536, 2.0},
      {8, 1024, TypeClass::Plain, Algorithm::Inline, 0, 4.25},
  };
  table.settle();
  return table;
}

constexpr DeviceShape kShape{4, 32u << 20};

TEST(TuningTable, CrossesOverHalfWayByRatio) {
  const TuningTable table = sample();
  EXPECT_EQ(table.find(2, 1, DType::Float32)->algorithm, Algorithm::Inline);
  EXPECT_EQ(table.find(2, 8192, DType::Float32)->algorithm,
            Algorithm::Inline);  // 8 x 1024, 65536 / 8
  EXPECT_EQ(table.find(2, 8193, DType::Float32)->algorithm, Algorithm::Tiled);
  EXPECT_EQ(table.find(2, 1ull << 40, DType::Float32)->algorithm, Algorithm::Tiled);
}

TEST(TuningTable, ThreadsThatHelpHaveToSaveMoreThanTheyMayWaitForACore) {
  TuningTable table;
  table.points = {{2, 1024, TypeClass::Plain, Algorithm::Inline, 0, 60.0},
                  {2, 1024, TypeClass::Plain, Algorithm::Tiled, 65536, 60.0 - kHelpUs + 0.5},
                  {2, 65536, TypeClass::Plain, Algorithm::Inline, 0, 60.0},
                  {2, 65536, TypeClass::Plain, Algorithm::Tiled, 65536, 60.0 - kHelpUs - 0.5}};
  table.settle();
  EXPECT_EQ(table.find(2, 1024, DType::Float32)->algorithm, Algorithm::Inline);
  EXPECT_EQ(table.find(2, 65536, DType::Float32)->algorithm, Algorithm::Tiled);
}

TEST(TuningTable, AnswersForTheNearestRanksAndOnlyForItsClass) {
  const TuningTable table = sample();
  EXPECT_EQ(table.find(1, 1024, DType::Float32)->ranks, 2u);
  EXPECT_EQ(table.find(7, 1024, DType::Float32)->ranks, 2u);
  EXPECT_EQ(table.find(64, 1024, DType::Float32)->ranks, 8u);
  EXPECT_EQ(table.find(2, 1024, DType::BFloat16), nullptr);
}

TEST(TuningTable, ReadsBackWhatItPrints) {
  const TuningTable table = sample();
  const Result<TuningTable> read = parse_tuning(print_tuning(table), "table");
  ASSERT_TRUE(read.ok()) << read.error().message;
  EXPECT_EQ(*read, table);
  EXPECT_EQ(read->crossovers, table.crossovers);
  EXPECT_EQ(read->machine, table.machine);
}

TEST(TuningTable, SavesAndLoadsAFile) {
  char folder[] = "/tmp/arcomm-tuning-XXXXXX";
  ASSERT_NE(::mkdtemp(folder), nullptr);
  const std::string path = std::string(folder) + "/tuning.toml";
  ASSERT_TRUE(save_tuning(sample(), path).ok());
  const Result<TuningTable> loaded = load_tuning(path);
  ASSERT_TRUE(loaded.ok());
  EXPECT_EQ(*loaded, sample());
  EXPECT_EQ(loaded->source, path);
  const Result<TuningTable> absent = load_tuning(path + ".absent");
  ASSERT_FALSE(absent.ok());
  EXPECT_EQ(absent.error().code, ErrorCode::NotFound);
  EXPECT_FALSE(save_tuning(sample(), "/nonexistent/folder/tuning.toml").ok());
  ::unlink(path.c_str());
  ::rmdir(folder);
}

TEST(TuningTable, RefusesWhatItDoesNotUnderstandWithFileAndLine) {
  const auto message = [](const std::string& text) {
    const Result<TuningTable> read = parse_tuning(text, "t.toml");
    return read ? std::string("accepted") : read.error().message;
  };
  const std::string point = "format = 1\n[[point]]\nranks = 2\nbytes = 8\nmicroseconds = 1.0\n";
  EXPECT_NE(message("format = 2\n").find("format must be 1"), std::string::npos);
  EXPECT_NE(message("").find("format"), std::string::npos);
  EXPECT_NE(message("format = 1\nx = 1\n").find("t.toml:2: unknown key 'x'"), std::string::npos)
      << message("format = 1\nx = 1\n");
  EXPECT_NE(message(point + "algorithm = \"warp\"\n").find("'warp' is unknown; there are"),
            std::string::npos);
  EXPECT_NE(message("format = 1\n[[point]]\nranks = 99\n").find("ranks must be"),
            std::string::npos);
  EXPECT_NE(message("format = 1\n[[point]]\nranks = \"two\"\n").find("ranks must be"),
            std::string::npos);
  EXPECT_NE(message("format = [[[").find("t.toml:1"), std::string::npos);
  EXPECT_NE(message("format = 1\npoint = 3\n").find("list"), std::string::npos);
  EXPECT_NE(message("format = 1\npoint = [1]\n").find("table"), std::string::npos);
}

TEST(TuningTable, PointsAreOfACollectiveAndACodecAndOfTheFirstWhereNothingSaysSo) {
  const std::string point =
      "format = 1\n[[point]]\nranks = 2\nbytes = 8\nmicroseconds = 1.0\nalgorithm = \"inline\"\n";
  const std::string named = point + "collective = \"all_reduce\"\ncodec = \"none\"\n";
  const Result<TuningTable> short_form = parse_tuning(point, "t"),
                            long_form = parse_tuning(named, "t");
  ASSERT_TRUE(short_form.ok() && long_form.ok());
  EXPECT_EQ(*short_form, *long_form);
  EXPECT_EQ(long_form->points[0].key, TuningKey{});
  EXPECT_NE(long_form->find(2, 8, DType::Float32), nullptr);
  const TuningKey other{.collective = static_cast<Collective>(7)};
  EXPECT_EQ(long_form->find(2, 8, DType::Float32, other), nullptr);
  EXPECT_EQ(default_gpu_tuning().find(2, 8, other), nullptr);
  const Result<TuningTable> unknown = parse_tuning(point + "collective = \"scan\"\n", "t.toml");
  ASSERT_FALSE(unknown.ok());
  EXPECT_EQ(unknown.error().message,
            "t.toml:7: collective 'scan' is unknown; there are all_reduce");
  EXPECT_NE(parse_tuning(point + "codec = 8\n", "t.toml").error().message.find("there are none"),
            std::string::npos);
}

TEST(TuningTable, PointsOfOneKeySayNothingOfAnother) {
  const TuningKey other{.codec = static_cast<Codec>(1)};
  TuningTable table;
  table.points = {{2, 1024, TypeClass::Plain, Algorithm::Inline, 0, 9.0, other},
                  {2, 1024, TypeClass::Plain, Algorithm::Tiled, 65536, 1.0}};
  table.gpu.points = {{2, 1024, CudaAlgorithm::Stream, 9.0, other},
                      {2, 1024, CudaAlgorithm::TwoShot, 1.0}};
  table.settle();
  table.gpu.settle();
  EXPECT_EQ(table.find(2, 1024, DType::Float32)->algorithm, Algorithm::Tiled);
  EXPECT_EQ(table.find(2, 1024, DType::Float32, other)->algorithm, Algorithm::Inline);
  EXPECT_EQ(table.gpu.find(2, 1024)->algorithm, CudaAlgorithm::TwoShot);
  EXPECT_EQ(table.gpu.find(2, 1024, other)->algorithm, CudaAlgorithm::Stream);
  EXPECT_EQ(table.gpu.in_stream_bounds.size(), 2u);
}

TEST(Planner, AnEmptyOperationNeedsNoStep) {
  EXPECT_TRUE(make_plan(Signature{}, 4, kShape, sample()).empty());
}

TEST(Planner, TheSameQuestionHasTheSameAnswer) {
  for (std::uint64_t count = 1; count < (1u << 28); count = count * 3 + 1) {
    const Signature signature = Signature::whole(all_reduce_of(count));
    EXPECT_EQ(make_plan(signature, 3, kShape, sample()), make_plan(signature, 3, kShape, sample()));
  }
}

TEST(Planner, WhatItChoosesCanRunAndLargeOperationsAreAlwaysCut) {
  TuningTable stubborn;  // measured by somebody who wants everything inline
  for (std::uint64_t bytes = 1024; bytes <= (1ull << 30); bytes *= 2) {
    stubborn.points.push_back({2, bytes, TypeClass::Plain, Algorithm::Inline, 0, 1.0});
  }
  stubborn.settle();
  for (const TuningTable& table : {TuningTable{}, sample(), stubborn}) {
    for (const std::uint32_t ranks : {1u, 2u, 4u, 8u, 64u}) {
      for (std::uint64_t bytes = 1; bytes <= (1ull << 32); bytes *= 4) {
        const Choice choice = choose(bytes, DType::Float32, ranks, kShape, table);
        EXPECT_TRUE(can_run(choice, bytes, ranks)) << bytes << " bytes, " << ranks << " ranks";
        const bool tiled = entry_of(choice.algorithm).is_tiled;
        EXPECT_TRUE(tiled || 2ull * ranks * bytes <= 2 * kTileTrafficBytes);
        if (tiled) {
          EXPECT_TRUE(2ull * ranks * choice.tile_bytes <= kTileTrafficBytes ||
                      choice.tile_bytes == kMinTileBytes);
        }
      }
    }
  }
}

TEST(Explain, SaysWhatWasMeasuredAndWhoCameSecond) {
  const Explanation answer = explain(sample(), kShape, 0, 2, 65536, DType::Float32);
  EXPECT_EQ(answer.chosen, "tiled");
  EXPECT_EQ(answer.runner_up, "inline");
  EXPECT_EQ(answer.chosen_microseconds, 125.0);
  EXPECT_EQ(answer.runner_up_microseconds, 200.0);
  EXPECT_NE(answer.text.find("64 KiB"), std::string::npos) << answer.text;
  EXPECT_NE(answer.text.find("counts 40 us more"), std::string::npos) << answer.text;
}

TEST(Explain, SaysWhatRunsWithinTheRanksCalls) {
  TuningTable table = sample();
  table.in_call.points = {{2, 1024, TypeClass::Plain, 0.25, 3.5},
                          {2, 32768, TypeClass::Plain, 5.0, 6.0},
                          {2, 65536, TypeClass::Plain, 11.0, 7.0}};
  const Explanation answer = explain(table, kShape, kInCallAuto, 2, 2048, DType::Float32);
  EXPECT_EQ(answer.chosen, "in_call");
  EXPECT_EQ(answer.runner_up, "inline");
  EXPECT_EQ(answer.chosen_microseconds, 0.25);
  EXPECT_EQ(answer.runner_up_microseconds, 1.0);
  EXPECT_NE(answer.text.find("up to 32 KiB of this type"), std::string::npos) << answer.text;
  EXPECT_NE(answer.text.find("0.25 us in calls, 3.50 us by the worker"), std::string::npos)
      << answer.text;
  const Explanation above = explain(table, kShape, kInCallAuto, 2, 65536, DType::Float32);
  EXPECT_EQ(above.chosen, "tiled");
  EXPECT_NE(above.text.find("11.00 us in calls"), std::string::npos) << above.text;
}

TEST(Explain, SaysThatNothingWasMeasured) {
  const Explanation answer = explain(default_tuning(), kShape, 0, 2, 4096, DType::Float32);
  EXPECT_EQ(answer.chosen_microseconds, 0);
  EXPECT_NE(answer.text.find("arctl tune"), std::string::npos) << answer.text;
}

TEST(Tuner, MeasuresWithinItsBudgetAndMakesAUsableTable) {
  const auto device = HostDevice::create({}).value();
  double last = 0;
  int steps = 0;
  const Result<TuningTable> table =
      tune(*device, {.max_bytes = 1 << 18, .budget = std::chrono::milliseconds(1500)},
           [&](const TuneStep& step) {
             EXPECT_GT(step.point.microseconds, 0);
             EXPECT_GE(step.progress, last);
             last = step.progress;
             ++steps;
             return true;
           });
  ASSERT_TRUE(table.ok()) << table.error().message;
  EXPECT_EQ(table->points.size(), static_cast<std::size_t>(steps));
  EXPECT_NE(table->find(2, 1024, DType::Float32), nullptr);
  EXPECT_TRUE(parse_tuning(print_tuning(*table), "again").ok());
}

TEST(Tuner, MeasuresWithTheThreadsThatTheExecutorWillHave) {
  const auto device = HostDevice::create({}).value();
  const Result<TuningTable> table =
      tune(*device, {.max_bytes = 1024, .threads = 3}, [](const TuneStep&) { return false; });
  ASSERT_TRUE(table.ok());
  EXPECT_NE(table->machine.find(", 3 threads"), std::string::npos) << table->machine;
}

TEST(Tuner, StopsWhenItIsToldTo) {
  const auto device = HostDevice::create({}).value();
  const Result<TuningTable> table =
      tune(*device, {.max_bytes = 4096}, [](const TuneStep&) { return false; });
  ASSERT_TRUE(table.ok());
  EXPECT_EQ(table->points.size(), 1u);
}

}  // namespace
}  // namespace arcomm
