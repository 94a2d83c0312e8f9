// `arctl check` on nodes with GPUs and without, on a machine that has none: what cannot be tested
// is one line with its reason, and with libraries that do all in host memory every type and
// operation is checked and what is wrong is named.
#include <gtest/gtest.h>

#include "tests/integration/node_test.h"
#include "tests/support/processes/child_process.h"

namespace arcomm::support {
namespace {

class GpuCheck : public NodeTest {
 protected:
  // libraries: where CUDA's driver is looked for first; "": nowhere else than always.
  ArctlRun check(const std::string& libraries, const std::vector<std::string>& more = {},
                 const std::vector<std::string>& variables = {}) {
    std::vector<std::string> words = {arctl_binary(), "check"};
    words.insert(words.end(), more.begin(), more.end());
    std::vector<std::string> environment = node().environment();
    environment.insert(environment.end(), variables.begin(), variables.end());
    if (!libraries.empty()) environment.push_back("LD_LIBRARY_PATH=" + libraries);
    Ran ran = run_to_end(std::move(words), environment, milliseconds(120'000));
    return {ran.exit && ran.exit->signal == 0 ? ran.exit->code : -1, std::move(ran.output),
            std::move(ran.errors)};
  }
  static bool says(const std::string& text, const std::string& words) {
    return text.find(words) != std::string::npos;
  }
};

TEST_F(GpuCheck, TestsTheHostAndSaysInOneLineThatNoGpuIsTested) {
  start();
  const ArctlRun run = check("");
  EXPECT_EQ(run.code, 0) << run.errors;
  EXPECT_TRUE(says(run.output, "700 AllReduces between 2 processes: all results are right"))
      << run.output;
  EXPECT_TRUE(says(run.output, "\nGPUs are not tested: ")) << run.output;
  EXPECT_EQ(run.errors, "");
}

TEST_F(GpuCheck, FailsWithTheReasonWhereGpusAreWantedAndCannotBeTested) {
  start();
  const ArctlRun run = check("", {"--device", "gpu"});
  if (says(run.errors, "the daemon serves no GPUs")) GTEST_SKIP() << "this machine has GPUs";
  EXPECT_EQ(run.code, 1) << run.errors;
  EXPECT_TRUE(says(run.output, "GPUs are not tested: ")) << run.output;
  EXPECT_FALSE(says(run.output, "processes")) << "the host was tested, too";
  EXPECT_TRUE(says(run.errors, "built without CUDA") || says(run.errors, "the CUDA driver "))
      << run.errors;
}

TEST_F(GpuCheck, AsJsonIsOneDocument) {
  start();
  const nlohmann::json said = check("", {"--json"}).json();
  EXPECT_EQ(said["ok"], true);
  EXPECT_EQ(said["checks"].size(), 10u);
  EXPECT_EQ(said["gpus"]["tested"], false);
  EXPECT_NE(said["gpus"]["why_not"], "");
  EXPECT_FALSE(check("", {"--json", "--device", "host"}).json().contains("gpus"));
}

#ifdef ARCOMM_FAKE_GPUS
constexpr const char* kDriver = ARCOMM_FAKE_GPUS "/driver";
constexpr const char* kNode = ARCOMM_FAKE_GPUS "/driver:" ARCOMM_FAKE_GPUS "/node";

TEST_F(GpuCheck, SaysThatTheDaemonServesNoneOfTheGpusThatAreThere) {
  start();
  const ArctlRun run = check(kDriver);
  EXPECT_EQ(run.code, 0) << run.errors;
  EXPECT_TRUE(says(run.output, "GPUs are not tested: the daemon serves none (backend host)"))
      << run.output;
  const ArctlRun wanted = check(kDriver, {"--device", "gpu"});
  EXPECT_EQ(wanted.code, 5) << wanted.errors;
  EXPECT_TRUE(says(wanted.errors, "the daemon serves no GPUs")) << wanted.errors;
}

TEST_F(GpuCheck, ReducesEveryTypeWithEveryOperationOnStreamsAndInGraphs) {
  start();
  const ArctlRun run = check(kNode, {"--device", "gpu", "-e", "2M", "--json"});
  EXPECT_EQ(run.code, 0) << run.errors;
  const nlohmann::json gpus = run.json()["gpus"];
  ASSERT_EQ(gpus["teams"].size(), 2u) << run.output;
  // 10 types, 5 operations; 3 sizes in place and not, on a stream and in a graph; one more size.
  EXPECT_EQ(gpus["teams"][0]["operations"], 10 * 5 * (3 * 2 * 2 + 1));
  EXPECT_EQ(gpus["teams"][0]["wrong"], 0);
  EXPECT_GT(gpus["teams"][0]["copies_gb_s"].get<double>(), 0);
  EXPECT_EQ(gpus["teams"][0]["gpu"], "a fake GPU, CUDA 13.0");
  EXPECT_EQ(gpus["teams"][1]["memory"], "cuMemAlloc");
  EXPECT_EQ(gpus["ok"], true);
}

TEST_F(GpuCheck, NamesThePairsOfAWrongResultAndOfGpusThatDoNotReachEachOther) {
  start();
  const ArctlRun run =
      check(kNode, {"--device", "gpu", "-e", "1"},
            {"ARCOMM_FAKE_GPU_COUNT=3", "ARCOMM_FAKE_WRONG=arcommd", "ARCOMM_FAKE_APART=1"});
  EXPECT_EQ(run.code, 1) << run.errors;
  const std::string pairs = "GPUs 0, 1; GPUs 0, 2; GPUs 1, 2";
  EXPECT_TRUE(says(run.output, pairs + ": sum of 1023 x float16 on a stream: rank 1, 2046 bytes"))
      << run.output;
  EXPECT_TRUE(
      says(run.output, pairs + "; GPUs 0, 1, 2: copies were not timed: a GPU does not reach"))
      << run.output;
  EXPECT_TRUE(says(run.output, "WRONG")) << run.output;
  EXPECT_TRUE(says(run.errors, "elements are wrong on GPUs")) << run.errors;
}
#endif

}  // namespace
}  // namespace arcomm::support
