// The GPUs' part of a tuning table: what it chooses, and how it is written and read.
#include <gtest/gtest.h>

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "daemon/plan/explain.h"
#include "daemon/plan/gpu_planner.h"
#include "daemon/plan/launch_table_between_nodes.h"
#include "daemon/plan/launch_table_builder.h"
#include "daemon/plan/recorded_algorithm.h"
#include "daemon/plan/tuning/tuning_table.h"
#include "proto/gpu/device_mailbox.h"

namespace arcomm {
namespace {

constexpr std::uint64_t kMiB = 1 << 20;

CudaAlgorithm built_in(std::uint32_t ranks, std::uint64_t bytes) {
  return choose(default_gpu_tuning(), std::nullopt, ranks, bytes);
}

GpuTuningTable gpu_sample() {
  GpuTuningTable table;
  table.machine = "4 x \"GPU\"";
  table.points = {
      {4, 1 * kMiB, CudaAlgorithm::Stream, 40.0},  {4, 1 * kMiB, CudaAlgorithm::TwoShot, 30.5},
      {4, 16 * kMiB, CudaAlgorithm::Stream, 90.0}, {4, 16 * kMiB, CudaAlgorithm::TwoShot, 110.0},
      {2, 1024, CudaAlgorithm::OneShotLl16, 3.0},
  };
  table.settle();
  return table;
}

TEST(GpuTuning, BuiltInTableIsTheOneOfTheReadme) {
  EXPECT_EQ(built_in(1, kMiB), CudaAlgorithm::Alone);
  EXPECT_EQ(built_in(2, (128 << 10) - 1), CudaAlgorithm::OneShotLl16);
  EXPECT_EQ(built_in(2, 128 << 10), CudaAlgorithm::OneShotLl128);
  EXPECT_EQ(built_in(2, 3 * kMiB - 1), CudaAlgorithm::OneShotLl128);
  EXPECT_EQ(built_in(2, 3 * kMiB), CudaAlgorithm::TwoShot);
  EXPECT_EQ(built_in(2, 12 * kMiB - 1), CudaAlgorithm::TwoShot);
  EXPECT_EQ(built_in(2, 12 * kMiB), CudaAlgorithm::Stream);
  EXPECT_EQ(built_in(2, 256 * kMiB - 1), CudaAlgorithm::Stream);
  EXPECT_EQ(built_in(2, 256 * kMiB), CudaAlgorithm::CopyEngine);
  EXPECT_EQ(built_in(3, 256 << 10), CudaAlgorithm::OneShotLl128);
  EXPECT_EQ(built_in(3, kMiB), CudaAlgorithm::TwoShotLl128);
  EXPECT_EQ(built_in(4, 4 * kMiB), CudaAlgorithm::TwoShotLl128);
  EXPECT_EQ(built_in(4, 4 * kMiB + 1), CudaAlgorithm::Flash);
  EXPECT_EQ(built_in(4, 8 * kMiB), CudaAlgorithm::Stream);
  EXPECT_EQ(built_in(8, 64 * kMiB), CudaAlgorithm::Stream);
}

TEST(GpuTuning, CrossesOverHalfWayByRatio) {
  const GpuTuningTable table = gpu_sample();
  EXPECT_EQ(table.find(4, 1)->algorithm, CudaAlgorithm::TwoShot);
  EXPECT_EQ(table.find(4, 4 * kMiB)->algorithm, CudaAlgorithm::TwoShot);
  EXPECT_EQ(table.find(4, 4 * kMiB + 1)->algorithm, CudaAlgorithm::Stream);
  EXPECT_EQ(table.find(4, 1 << 30)->algorithm, CudaAlgorithm::Stream);
}

TEST(GpuTuning, ThreeRanksAreMoreLikeFourThanLikeTwo) {
  const GpuTuningTable table = gpu_sample();
  EXPECT_EQ(table.find(2, kMiB)->ranks, 2u);
  EXPECT_EQ(table.find(3, kMiB)->ranks, 4u);
  EXPECT_EQ(table.find(8, kMiB)->ranks, 4u);
  EXPECT_EQ(GpuTuningTable{}.find(2, kMiB), nullptr);
}

// What the daemon launches for 8 us, beside what clients launch.
GpuTuningTable with_in_stream(const std::vector<std::pair<std::uint64_t, double>>& in_stream) {
  GpuTuningTable table;
  for (std::uint64_t bytes = 1024; bytes <= 16 * kMiB; bytes *= 4)
    table.points.push_back({2, bytes, CudaAlgorithm::Stream, 8.0});
  for (const auto& [bytes, microseconds] : in_stream)
    table.points.push_back({2, bytes, std::nullopt, microseconds});
  table.settle();
  return table;
}

TEST(GpuTuning, ClientsLaunchAsLongAsThatIsFaster) {
  EXPECT_EQ(default_gpu_tuning().most_in_stream_bytes(2), kUnlimitedInStreamBytes);
  EXPECT_EQ(with_in_stream({}).most_in_stream_bytes(2), kUnlimitedInStreamBytes);
  EXPECT_EQ(with_in_stream({{1024, 3}, {4096, 9}, {16384, 9.9}}).most_in_stream_bytes(2),
            kUnlimitedInStreamBytes);
  const GpuTuningTable some =
      with_in_stream({{1024, 3}, {kMiB, 4}, {4 * kMiB, 11}, {16 * kMiB, 30}});
  EXPECT_EQ(some.most_in_stream_bytes(2), 2 * kMiB);
  EXPECT_EQ(some.most_in_stream_bytes(8), 2 * kMiB);  // the nearest that were measured
  EXPECT_EQ(some.find(2, 1024)->algorithm, CudaAlgorithm::Stream);
}

TEST(GpuTuning, TheBoundLeavesNothingToTheResidentKernelWhichIsNotMeasured) {
  EXPECT_EQ(with_in_stream({{1024, 20}, {4096, 30}}).most_in_stream_bytes(2), kMaxResidentBytes);
  EXPECT_EQ(with_in_stream({{1024, 3}, {4096, 30}}).most_in_stream_bytes(2), kMaxResidentBytes);
}

TEST(GpuTuning, OneSizeMeasuredInABadMomentDoesNotDecideWhoLaunches) {
  EXPECT_EQ(with_in_stream({{1024, 3}, {4096, 14}, {kMiB, 4}, {4 * kMiB, 60}, {16 * kMiB, 9}})
                .most_in_stream_bytes(2),
            2 * kMiB);
}

TEST(GpuTuning, WhatIsChosenTakesTheOperation) {
  GpuTuningTable stubborn;  // edited by somebody who wants one_shot_ll16 everywhere
  stubborn.points = {{2, 1024, CudaAlgorithm::OneShotLl16, 1.0},
                     {2, 1024, CudaAlgorithm::Alone, 2}};
  stubborn.settle();
  for (const GpuTuningTable& table :
       {GpuTuningTable{}, default_gpu_tuning(), gpu_sample(), stubborn}) {
    for (std::uint32_t ranks = 1; ranks <= kMaxGpuRanks; ++ranks) {
      for (std::uint64_t bytes = 1; bytes <= 1ull << 34; bytes *= 4) {
        EXPECT_TRUE(can_launch(choose(table, std::nullopt, ranks, bytes), bytes, ranks));
        for (const CudaAlgorithmEntry& forced : cuda_algorithms()) {
          const CudaAlgorithm chosen = choose(table, forced.algorithm, ranks, bytes);
          EXPECT_TRUE(can_launch(chosen, bytes, ranks));
          if (can_launch(forced.algorithm, bytes, ranks)) {
            EXPECT_EQ(chosen, forced.algorithm);
          }
        }
      }
    }
  }
}

TEST(GpuTuning, IsKeptInTheFileOfTheHostsTable) {
  TuningTable table;
  table.points = {{2, 1024, TypeClass::Plain, Algorithm::Inline, 0, 1.0}};
  table.settle();
  table.gpu = gpu_sample();
  table.gpu.points.push_back({4, 1 * kMiB, std::nullopt, 20.0});
  table.gpu.settle();
  const Result<TuningTable> read = parse_tuning(print_tuning(table), "t.toml");
  ASSERT_TRUE(read.ok()) << read.error().message;
  EXPECT_EQ(*read, table);
  EXPECT_EQ(read->gpu.machine, table.gpu.machine);
  EXPECT_EQ(read->gpu.source, "t.toml");
  const Result<TuningTable> host_only = parse_tuning("format = 1\n[gpu]\n", "t.toml");
  ASSERT_TRUE(host_only.ok()) << host_only.error().message;
  EXPECT_EQ(host_only->gpu, default_gpu_tuning());
}

TEST(GpuTuning, RefusesWhatItDoesNotUnderstandWithFileAndLine) {
  const auto message = [](const std::string& text) {
    const Result<TuningTable> read = parse_tuning("format = 1\n" + text, "t.toml");
    return read ? std::string("accepted") : read.error().message;
  };
  const std::string point = "[[gpu.point]]\nranks = 2\nbytes = 8\nmicroseconds = 1.0\n";
  EXPECT_NE(message(point + "algorithm = \"warp\"\n")
                .find("t.toml:2: algorithm 'warp' is unknown; there are one_shot_ll16"),
            std::string::npos)
      << message(point + "algorithm = \"warp\"\n");
  EXPECT_NE(message(point + "tile_bytes = 3\n").find("t.toml:6: unknown key 'tile_bytes'"),
            std::string::npos);
  EXPECT_NE(message("[[gpu.point]]\nranks = 9\n").find("ranks must be 1 to 8"), std::string::npos);
  EXPECT_NE(message("gpu = 3\n").find("t.toml:2: gpu must be"), std::string::npos);
  EXPECT_NE(message("[gpu]\npoint = 3\n").find("t.toml:3: point must be a list"),
            std::string::npos);
}

TEST(GpuTuning, UnknownNamesOfKernelsAreRefusedWithThoseThatThereAre) {
  EXPECT_FALSE(forced_algorithm("auto")->has_value());
  EXPECT_EQ(forced_algorithm("stream")->value(), CudaAlgorithm::Stream);
  const auto unknown = forced_algorithm("ring");
  ASSERT_FALSE(unknown.ok());
  EXPECT_NE(unknown.error().message.find("gpu.algorithm \"ring\" is unknown"), std::string::npos);
  EXPECT_NE(unknown.error().message.find("two_shot"), std::string::npos);
}

TEST(GpuExplain, SaysWhatWasMeasuredAndWhoCameSecond) {
  const Explanation answer = explain(gpu_sample(), std::nullopt, 4, 8 * kMiB, DType::Int32, true);
  EXPECT_EQ(answer.chosen, "stream");
  EXPECT_EQ(answer.runner_up, "two_shot");
  EXPECT_EQ(answer.chosen_microseconds, 90.0);
  EXPECT_EQ(answer.runner_up_microseconds, 110.0);
  EXPECT_NE(answer.text.find("measured between 4 GPUs at 16 MiB"), std::string::npos)
      << answer.text;
}

TEST(GpuExplain, SaysThatSmallOperationsAreNotLaunched) {
  const Explanation answer = explain(gpu_sample(), std::nullopt, 2, 2048, DType::Int32, true);
  EXPECT_EQ(answer.chosen, "resident");
  EXPECT_EQ(answer.chosen_microseconds, 0);
  EXPECT_EQ(answer.runner_up, "one_shot_ll16");
  EXPECT_EQ(answer.runner_up_microseconds, 3.0);
  EXPECT_NE(answer.text.find("2 x 2 KiB between GPUs: resident"), std::string::npos) << answer.text;
}

TEST(GpuExplain, SaysWhatClientsLaunchByThemselves) {
  const Explanation answer = explain(gpu_sample(), std::nullopt, 2, 2048, DType::Float16, true);
  EXPECT_EQ(answer.chosen, "in_stream");
  EXPECT_EQ(answer.runner_up, "resident");
  EXPECT_NE(answer.text.find(
                "where a process does not see all GPUs, or they have no room, it is resident"),
            std::string::npos)
      << answer.text;
  EXPECT_EQ(explain(gpu_sample(), std::nullopt, 2, 2048, DType::Float16, false).chosen, "resident");
}

TEST(GpuExplain, GivesTheFiguresOfWhatClientsLaunch) {
  const GpuTuningTable table = with_in_stream({{4096, 4}, {kMiB, 5}, {4 * kMiB, 30}});
  const Explanation below = explain(table, std::nullopt, 2, 4096, DType::Float16, true);
  EXPECT_EQ(below.chosen, "in_stream");
  EXPECT_EQ(below.chosen_microseconds, 4.0);
  EXPECT_EQ(below.runner_up, "stream");
  EXPECT_EQ(below.runner_up_microseconds, 8.0);
  EXPECT_NE(below.text.find("counts 2 us more"), std::string::npos) << below.text;
  const Explanation above = explain(table, std::nullopt, 2, 4 * kMiB, DType::Float16, true);
  EXPECT_EQ(above.chosen, "stream");
  EXPECT_NE(above.text.find("clients launch nothing above 2 MiB themselves"), std::string::npos)
      << above.text;
  const Explanation not_of_this_type = explain(table, std::nullopt, 2, 4096, DType::Int32, true);
  EXPECT_EQ(not_of_this_type.chosen, "resident");
  EXPECT_EQ(not_of_this_type.runner_up, "stream");
  EXPECT_EQ(not_of_this_type.text.find("in_stream"), std::string::npos) << not_of_this_type.text;
}

TEST(GpuExplain, SaysWhoForcedTheChoiceAndWhenThatCouldNotBe) {
  const Explanation forced =
      explain(gpu_sample(), CudaAlgorithm::TwoShot, 4, 16 * kMiB, DType::Int32, true);
  EXPECT_EQ(forced.chosen, "two_shot");
  EXPECT_EQ(forced.runner_up, "stream");
  EXPECT_NE(forced.text.find("gpu.algorithm is \"two_shot\"\n"), std::string::npos);
  const Explanation too_large =
      explain(gpu_sample(), CudaAlgorithm::OneShotLl16, 4, 16 * kMiB, DType::Int32, true);
  EXPECT_EQ(too_large.chosen, "stream");
  EXPECT_NE(too_large.text.find("does not take it"), std::string::npos) << too_large.text;
}

TEST(GpuExplain, SaysThatTheTableIsBuiltIn) {
  const Explanation answer =
      explain(default_gpu_tuning(), std::nullopt, 4, 16 * kMiB, DType::Int32, true);
  EXPECT_EQ(answer.chosen, "stream");
  EXPECT_EQ(answer.runner_up, "stream");
  EXPECT_EQ(answer.chosen_microseconds, 0);
  EXPECT_NE(answer.text.find("built in"), std::string::npos) << answer.text;
  EXPECT_EQ(explain(default_gpu_tuning(), std::nullopt, 1, kMiB, DType::Int32, true).chosen,
            "alone");
}

TEST(RecordedAlgorithm, HasANameForEveryKernelOfHostAndGpus) {
  for (const AlgorithmEntry& entry : catalog())
    EXPECT_EQ(name_of_recorded(recorded(entry.algorithm)), entry.name);
  for (const CudaAlgorithmEntry& entry : cuda_algorithms())
    EXPECT_EQ(name_of_recorded(recorded(entry.algorithm)), entry.name);
  for (const NetworkAlgorithm algorithm : kNetworkAlgorithms)
    EXPECT_EQ(name_of_recorded(recorded(algorithm)), text_of(algorithm));
  EXPECT_EQ(name_of_recorded(kResidentKernel), "resident");
  EXPECT_EQ(name_of_recorded(kNoAlgorithm), "");
  EXPECT_EQ(name_of_recorded(100), "");
}

// A codec that no kernel serves: neither what is forced nor what was measured is asked to carry it.
TEST(GpuPlanner, RefusesACodecByTheNameOfTheKernelThatDoesNotServeIt) {
  constexpr Codec kCodec = Codec::Q6;
  GpuTuningTable measured;
  measured.points = {{2, 1 << 20, CudaAlgorithm::Stream, 9.0, {.codec = kCodec}}};
  measured.settle();
  EXPECT_EQ(choose(measured, CudaAlgorithm::Flash, 2, 1 << 20, {.codec = kCodec}),
            CudaAlgorithm::TwoShot);
  EXPECT_EQ(choose(measured, std::nullopt, 2, 1 << 20, {.codec = kCodec}), CudaAlgorithm::TwoShot);

  Signature signature{all_reduce_of(1 << 20)};
  const auto table_of = [&](std::uint8_t launched) {
    return LaunchTable::create(2, {{.launched = launched}}).value();
  };
  const LaunchTable table = table_of(static_cast<std::uint8_t>(CudaAlgorithm::Stream));
  const LaunchTable between_nodes = table_of(recorded(NetworkAlgorithm::Exchange));
  constexpr const char* kWhyNone = "node b does not allow codecs";
  EXPECT_TRUE(can_launch(table, signature, ""));
  EXPECT_TRUE(can_launch(between_nodes, signature, kWhyNone));
  signature.codec = kCodec;
  const Status launched = can_launch(table, signature, "");
  ASSERT_FALSE(launched);
  EXPECT_EQ(launched.error().message,
            "stream is not compiled for codec q6 (number 3): ask for no codec");
  const Status exchanged = can_launch(between_nodes, signature, kWhyNone);
  ASSERT_FALSE(exchanged);
  EXPECT_EQ(exchanged.error().message,
            "exchange between nodes takes no codec q6 (number 3) here: node b does not allow "
            "codecs; ask for no codec");
  EXPECT_TRUE(
      can_launch(make_launch_table_between_nodes({}, NetworkAlgorithm::Exchange), signature, ""));
}

// The table of a communicator says of each size what would have been chosen for that size.
TEST(GpuPlanner, TableHasWhatIsChosenAtEachSize) {
  GpuTuningTable measured;
  measured.points = {{2, 4096, CudaAlgorithm::OneShotLl16, 3.0},
                     {2, 1 << 20, CudaAlgorithm::TwoShotLl128, 9.0},
                     {2, 64 << 20, CudaAlgorithm::CopyEngine, 200.0}};
  measured.settle();
  const std::optional<CudaAlgorithm> forced[] = {std::nullopt, CudaAlgorithm::OneShotLl128,
                                                 CudaAlgorithm::Flash, CudaAlgorithm::CopyEngine};
  for (const GpuTuningTable& table : {default_gpu_tuning(), measured}) {
    for (const auto& algorithm : forced) {
      for (std::uint32_t ranks = 1; ranks <= kMaxGpuRanks; ++ranks) {
        for (const bool whole : {false, true}) {
          const CudaAbilities abilities{.atomic_128b_stores = whole};
          const LaunchTable launches = make_launch_table(
              {.ranks = ranks, .launched = launched_stretches(table, algorithm, ranks, abilities)});
          std::vector<std::uint64_t> sizes{0, 4, kAnyBytes / 2};
          for (std::uint64_t bytes = 1024; bytes <= std::uint64_t{64} << 30; bytes *= 2)
            sizes.insert(sizes.end(), {bytes - 4, bytes, bytes + 4, bytes + bytes / 2});
          for (const std::uint64_t bytes : sizes) {
            ASSERT_EQ(launched_algorithm(launches.find_launched({.bytes = bytes})),
                      algorithm_among(abilities, choose(table, algorithm, ranks, bytes), bytes))
                << bytes << " bytes between " << ranks;
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace arcomm
