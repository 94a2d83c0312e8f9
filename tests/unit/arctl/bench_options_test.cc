#include "client/arctl/bench/bench_options.h"

#include <gmock/gmock.h>

#include <functional>

namespace arcomm::arctl {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

BenchOptions on_gpus() {
  BenchOptions options;
  options.device = "gpu";
  return options;
}

TEST(BenchOptions, AreTheHostsUnlessTheySayOtherwise) {
  const Result<BenchPlan> plan = plan_of(BenchOptions());
  ASSERT_TRUE(plan.ok());
  EXPECT_EQ(plan->device, RankDevice::Host);
  EXPECT_EQ(plan->ranks, 2);
  EXPECT_EQ(timing_name(*plan), "latency");
  EXPECT_THAT(plan->in_place, ElementsAre(false, true));
  EXPECT_THAT(plan->sizes, ElementsAre(1 << 10, 4 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20,
                                       4 << 20, 16 << 20, 64 << 20));
  EXPECT_EQ(case_of(*plan, BenchOptions(), 1024, true).rounds, 5u);
}

TEST(BenchOptions, OfGpusHaveDefaultsOfTheirOwn) {
  const Result<BenchPlan> plan = plan_of(on_gpus());
  ASSERT_TRUE(plan.ok());
  EXPECT_EQ(timing_name(*plan), "cuda-events");
  EXPECT_THAT(plan->in_place, ElementsAre(false));
  EXPECT_THAT(plan->in_graph, ElementsAre(false, true));
  EXPECT_THAT(plan->gpus, ElementsAre(0, 1));
  EXPECT_THAT(plan->contenders, ElementsAre(Contender::Arcommd));
}

TEST(BenchOptions, TakeAsManyRanksAsGpusAreNamed) {
  BenchOptions options = on_gpus();
  options.gpus = {3, 1, 0};
  options.peers = {"nccl-symmetric", "nccl"};
  const Result<BenchPlan> plan = plan_of(options);
  ASSERT_TRUE(plan.ok());
  EXPECT_EQ(plan->ranks, 3);
  EXPECT_THAT(plan->gpus, ElementsAre(3, 1, 0));
  EXPECT_THAT(plan->contenders,
              ElementsAre(Contender::Arcommd, Contender::Nccl, Contender::NcclSymmetric));
}

TEST(BenchOptions, AreRefusedWhereTheyMakeNoSense) {
  struct Refusal {
    const char* device;
    std::function<void(BenchOptions&)> with;
    const char* says;
  };
  for (const Refusal& each : std::initializer_list<Refusal>{
           {"host", [](BenchOptions& o) { o.mode = "graph"; }, "--mode is of GPUs"},
           {"host",
            [](BenchOptions& o) {
              o.gpus = {0, 1};
            },
            "--gpus is of GPUs"},
           {"host", [](BenchOptions& o) { o.peers = {"nccl"}; }, "--peers is of GPUs"},
           {"host", [](BenchOptions& o) { o.nccl = "x"; }, "--nccl is of GPUs"},
           {"host", [](BenchOptions& o) { o.timing = "cuda-events"; }, "add --device gpu"},
           {"host", [](BenchOptions& o) { o.memory = "cuda"; }, "--memory cuda is a GPU's"},
           {"host",
            [](BenchOptions& o) {
              o.persistent = true;
              o.timing = "throughput";
            },
            "one start at a time"},
           {"host", [](BenchOptions& o) { o.from = "2M", o.to = "1M"; }, "got 2M and 1M"},
           {"host", [](BenchOptions& o) { o.dtype = "float8"; }, "float8"},
           {"host", [](BenchOptions& o) { o.codec = "q5"; }, "unknown codec: q5"},
           {"host", [](BenchOptions& o) { o.codec = "q8", o.op = "max"; },
            "--codec q8 does not serve max of float32"},
           {"gpu", [](BenchOptions& o) { o.codec = "fp8", o.dtype = "int8"; },
            "--codec fp8 does not serve sum of int8"},
           {"gpu", [](BenchOptions& o) { o.persistent = true; }, "--mode graph"},
           {"gpu", [](BenchOptions& o) { o.memory = "heap"; }, "--memory heap is the host's"},
           {"gpu", [](BenchOptions& o) { o.memory = "registered"; }, "arcMemAlloc"},
           {"gpu", [](BenchOptions& o) { o.timing = "p50"; }, "latency times every call"},
           {"gpu", [](BenchOptions& o) { o.ranks = 9; }, "at most 8"},
           {"gpu",
            [](BenchOptions& o) {
              o.gpus = {0, 1, 0};
            },
            "GPU 0 twice"},
           {"gpu",
            [](BenchOptions& o) {
              o.gpus = {0, 1}, o.ranks = 4;
            },
            "2 GPUs for 4 ranks"},
           {"gpu", [](BenchOptions& o) { o.from = "2"; }, "less than one element"},
           {"gpu", [](BenchOptions& o) { o.nccl = "x"; }, "add --peers"},
           {"gpu", [](BenchOptions& o) { o.peers = {"mpi"}; }, "got mpi"},
           {"gpu",
            [](BenchOptions& o) {
              o.peers = {"nccl"};
              o.op = "avg";
              o.ranks = 3;
            },
            "2, 4 or 8 ranks"}}) {
    BenchOptions options;
    options.device = each.device;
    each.with(options);
    const Result<BenchPlan> plan = plan_of(options);
    ASSERT_FALSE(plan.ok()) << each.says;
    EXPECT_EQ(plan.error().code, ErrorCode::InvalidArgument);
    EXPECT_THAT(plan.error().message, HasSubstr(each.says));
  }
}

TEST(BenchOptions, TimeWholeGraphs) {
  BenchOptions options = on_gpus();
  options.iterations = 11;
  options.warmup = 1;
  const Result<BenchPlan> plan = plan_of(options);
  ASSERT_TRUE(plan.ok());
  const BenchCase graph = gpu_case_of(*plan, options, 1024, false, Contender::Nccl, true);
  EXPECT_EQ(graph.iterations, 20u);
  EXPECT_EQ(graph.warmup, 10u);
  EXPECT_EQ(graph.rounds, 101u);
  EXPECT_EQ(graph.contender, Contender::Nccl);
  EXPECT_EQ(gpu_case_of(*plan, options, 1024, false, Contender::Nccl, false).iterations, 11u);
}

TEST(BenchOptions, KeepEveryCallsSampleWithinWhatTheBoardHolds) {
  BenchOptions options = on_gpus();
  options.timing = "latency";
  options.iterations = 1000;
  const Result<BenchPlan> plan = plan_of(options);
  ASSERT_TRUE(plan.ok());
  const BenchCase what = gpu_case_of(*plan, options, 1024, false, Contender::Arcommd, true);
  EXPECT_EQ(what.iterations, 1000u);
  EXPECT_LE(what.samples(), kMaxSamples);
  EXPECT_GE(what.rounds, 1u);
}

}  // namespace
}  // namespace arcomm::arctl
