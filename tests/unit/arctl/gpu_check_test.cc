// What `arctl check` tests of GPUs, and what it says of what it found.
#include <gmock/gmock.h>

#include <nlohmann/json.hpp>

#include "client/arctl/check/gpu_report.h"

namespace arcomm::arctl {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

GpuTeamCheck team(std::vector<int> gpus) {
  GpuTeamCheck checked;
  checked.plan.gpus = std::move(gpus);
  checked.copies_gb_s = 389.04;
  checked.operations = 39;
  checked.bytes = 1 << 20;
  checked.slowest_us = 1200;
  v1::CommunicatorStatus communicator;
  v1::LaunchStretch& stretch = *communicator.add_launches();
  stretch.set_types("float16");
  stretch.set_path("in-stream");
  stretch.set_most_bytes(16 << 20);
  checked.communicator = communicator;
  return checked;
}

GpuCheck check_of(std::vector<GpuTeamCheck> teams) {
  GpuCheck check;
  check.backend = "cuda: 3 x NVIDIA H200, NVLink, MPS";
  check.seen = {.count = 3, .under_mps = true};
  check.teams = std::move(teams);
  return check;
}

v1::StatusReply status_of_backend(const std::string& backend) {
  v1::StatusReply status;
  status.set_backend(backend);
  return status;
}

TEST(GpuCheck, TestsEachPairOfThreeGpusAndThenAllOfThem) {
  std::vector<std::vector<int>> gpus;
  for (const GpuTeamPlan& plan : gpu_teams({0, 1, 3}, 1 << 20)) gpus.push_back(plan.gpus);
  EXPECT_THAT(gpus, ElementsAre(ElementsAre(0, 1), ElementsAre(0, 3), ElementsAre(1, 3),
                                ElementsAre(0, 1, 3), ElementsAre(0, 1, 3)));
}

TEST(GpuCheck, TestsTwoGpusOrOneAsTheyAreOnMemoryOfBothKinds) {
  for (const std::vector<int>& gpus : {std::vector<int>{0, 1}, std::vector<int>{2}}) {
    const std::vector<GpuTeamPlan> plans = gpu_teams(gpus, 1 << 20);
    ASSERT_EQ(plans.size(), 2u);
    EXPECT_EQ(plans[0].gpus, gpus);
    EXPECT_TRUE(plans[0].is_thorough);
    EXPECT_EQ(plans[0].memory, RankMemory::Shared);
    EXPECT_EQ(plans[1].memory, RankMemory::Cuda);
  }
}

TEST(GpuCheck, SaysWhatMpsIsMissingAndWhere) {
  const GpusSeen outside{.count = 2, .under_mps = false}, under{.count = 2, .under_mps = true};
  const v1::StatusReply without = status_of_backend("cuda: 2 x NVIDIA H200, NVLink, no MPS");
  EXPECT_THAT(gpu_remarks(&without, outside),
              ElementsAre(HasSubstr("MPS does not serve the daemon")));
  v1::StatusReply warned = without;
  warned.add_warnings("group arcomm does not exist");
  warned.add_warnings("MPS was not started: no such file");
  EXPECT_THAT(gpu_remarks(&warned, outside), ElementsAre("MPS was not started: no such file"));
  const v1::StatusReply with = status_of_backend("cuda: 2 x NVIDIA H200, NVLink, MPS");
  EXPECT_THAT(gpu_remarks(&with, outside), ElementsAre(HasSubstr("CUDA_MPS_PIPE_DIRECTORY")));
  EXPECT_THAT(gpu_remarks(&with, under), IsEmpty());
  EXPECT_THAT(gpu_remarks(nullptr, outside), IsEmpty());
}

TEST(GpuCheck, SaysThatMoreGpusAreThereThanACommunicatorTakes) {
  EXPECT_THAT(gpu_remarks(nullptr, {.count = 16, .under_mps = true}),
              ElementsAre(HasSubstr("sees 16 GPUs, and the first 8 are tested")));
}

TEST(GpuCheckReport, IsOneLineWhereNothingWasTested) {
  GpuCheck check;
  check.not_tested = "this arctl was built without CUDA";
  EXPECT_EQ(gpu_check_text(check, false),
            "GPUs are not tested: this arctl was built without CUDA\n");
  const Json json = gpu_check_json(check);
  EXPECT_EQ(json["tested"], false);
  EXPECT_EQ(json["ok"], true) << "not wanted, and so no failure";
}

TEST(GpuCheckReport, SaysOnceWhichPathsAllTeamsTook) {
  const std::string text = gpu_check_text(check_of({team({0, 1}), team({0, 2})}), false);
  EXPECT_THAT(text, HasSubstr("0,1   arcMemAlloc  389.0 GB/s"));
  EXPECT_THAT(text, HasSubstr("GPUs 0, 1; GPUs 0, 2: float16: in-stream to 16 MiB\n"));
  EXPECT_THAT(text, HasSubstr("78 AllReduces on GPUs: all results are right\n"));
  EXPECT_THAT(text, Not(HasSubstr("why not")));
}

TEST(GpuCheckReport, NamesTheGpusOfWhatIsWrongAndOfWhatCannotBeHad) {
  GpuTeamCheck wrong = team({0, 1}), failed = team({0, 2}), apart = team({1, 2});
  wrong.wrong = 6;
  wrong.first_wrong = "sum of 1023 x float16 on a stream: rank 1: element 5";
  failed.outcome = error(ErrorCode::DeadlineExceeded, Reason::Timeout, "no rank moved");
  apart.copies_gb_s.reset();
  apart.copies_why = "a GPU does not reach its neighbour's memory";
  apart.communicator->set_why_not_in_stream("rank 1's process does not see GPU-2");
  GpuCheck check = check_of({wrong, failed, apart});
  check.outcome = failed.outcome;
  const std::string text = gpu_check_text(check, false);
  EXPECT_THAT(text, HasSubstr("GPUs 0, 1: sum of 1023 x float16 on a stream: rank 1: element 5\n"));
  EXPECT_THAT(text, HasSubstr("GPUs 0, 2: no rank moved\n"));
  EXPECT_THAT(text, HasSubstr("GPUs 1, 2: copies were not timed: a GPU does not reach"));
  EXPECT_THAT(text, HasSubstr("GPUs 1, 2: why not more in-stream: rank 1's process does not see"));
  EXPECT_THAT(text, HasSubstr("AllReduces on GPUs: 6 elements are wrong\n"));
  const Json json = gpu_check_json(check);
  EXPECT_EQ(json["ok"], false);
  EXPECT_EQ(json["wrong"], 6);
  EXPECT_EQ(json["teams"][1]["error"], "no rank moved");
  EXPECT_EQ(json["teams"][2]["copies_gb_s"], nullptr);
  EXPECT_EQ(json["teams"][2]["why_not_in_stream"], "rank 1's process does not see GPU-2");
}

TEST(GpuCheckReport, DoesNotCallResultsRightWhereTheTestEndedEarly) {
  GpuCheck check = check_of({team({0, 1})});
  check.outcome = error(ErrorCode::DeadlineExceeded, Reason::Timeout, "no rank moved");
  EXPECT_THAT(gpu_check_text(check, false), HasSubstr("not all of them were done"));
}

}  // namespace
}  // namespace arcomm::arctl
