// `arctl bench --device gpu` without a GPU: what is missing is named, at once, and the node is as
// good as before; and with libraries that do all in host memory, what it measures, checks and says.
#include <gtest/gtest.h>

#include "tests/integration/node_test.h"
#include "tests/support/processes/child_process.h"

namespace arcomm::support {
namespace {

class GpuBench : public NodeTest {
 protected:
  // libraries: where CUDA's driver is looked for first; "": nowhere else than always.
  ArctlRun bench(const std::string& libraries, const std::vector<std::string>& more = {},
                 const std::vector<std::string>& variables = {}) {
    std::vector<std::string> words = {arctl_binary(), "bench", "--device", "gpu",
                                      "-n",           "10",    "--rounds", "3"};
    words.insert(words.end(), more.begin(), more.end());
    std::vector<std::string> environment = node().environment();
    environment.insert(environment.end(), variables.begin(), variables.end());
    if (!libraries.empty()) environment.push_back("LD_LIBRARY_PATH=" + libraries);
    Ran ran = run_to_end(std::move(words), environment, milliseconds(30000));
    return {ran.exit && ran.exit->signal == 0 ? ran.exit->code : -1, std::move(ran.output),
            std::move(ran.errors)};
  }
  static bool says(const ArctlRun& run, const std::string& words) {
    return run.errors.find(words) != std::string::npos;
  }
};

TEST_F(GpuBench, NamesThePartOfCudaThatIsMissing) {
  start();
  const ArctlRun run = bench("");
  if (says(run, "the daemon serves no GPUs") || says(run, "is wanted, and this process sees"))
    GTEST_SKIP() << "this machine has GPUs";
  EXPECT_EQ(run.code, 1) << run.errors;
  EXPECT_EQ(run.output, "");
  EXPECT_TRUE(says(run, "rank 0: ") || says(run, "rank 1: ")) << run.errors;
  EXPECT_TRUE(says(run, "this arctl was built without CUDA") || says(run, "the CUDA driver "))
      << run.errors;
  EXPECT_TRUE(says(run, "--device host") || says(run, "is a GPU visible")) << run.errors;
}

TEST_F(GpuBench, NamesTheLibraryOfAPeerThatIsMissingBeforeItMeasures) {
  start();
  const ArctlRun run = bench("", {"--peers", "nccl", "--nccl", "/nowhere/libnccl.so.2"});
  EXPECT_EQ(run.code, 1);
  EXPECT_TRUE(says(run, "NCCL cannot be loaded (/nowhere/libnccl.so.2")) << run.errors;
  EXPECT_TRUE(says(run, "--nccl")) << run.errors;
}

#ifdef ARCOMM_FAKE_GPUS
constexpr const char* kDriver = ARCOMM_FAKE_GPUS "/driver";
constexpr const char* kNode = ARCOMM_FAKE_GPUS "/driver:" ARCOMM_FAKE_GPUS "/node";

TEST_F(GpuBench, SaysThatTheDaemonServesNoGpus) {
  start();
  const ArctlRun run = bench(kDriver);
  EXPECT_EQ(run.code, 5) << run.errors;
  EXPECT_TRUE(says(run, "the daemon serves no GPUs")) << run.errors;
  EXPECT_TRUE(says(run, "arctl status")) << run.errors;
}

TEST_F(GpuBench, NamesTheGpuThatIsNotThere) {
  start();
  const ArctlRun run = bench(kDriver, {"--gpus", "0,7"});
  EXPECT_EQ(run.code, 1) << run.errors;
  EXPECT_TRUE(says(run, "rank 1: GPU 7 is wanted, and this process sees 2")) << run.errors;
  EXPECT_TRUE(says(run, "--gpus")) << run.errors;
}

TEST_F(GpuBench, MeasuresAndChecksEveryContenderInEveryModeAndPlace) {
  start();
  for (const std::string timing : {"cuda-events", "throughput", "latency"}) {
    const ArctlRun run = bench(kNode, {"--peers", "nccl,nccl-symmetric", "-e", "64K", "-f", "64",
                                       "--place", "both", "--timing", timing, "--json"});
    EXPECT_EQ(run.code, 0) << run.errors;
    const nlohmann::json said = run.json();
    ASSERT_FALSE(said.is_discarded()) << run.output;
    EXPECT_EQ(said["timing"], timing);
    EXPECT_GT(said["light_gb_s"].get<double>(), 0);
    EXPECT_EQ(said["contenders"][0]["gpu"], "a fake GPU, CUDA 13.0");
    EXPECT_EQ(said["contenders"][2]["version"], "2.27.3");
    ASSERT_EQ(said["rows"].size(), 4u);
    for (const nlohmann::json& row : said["rows"]) {
      for (const char* contender : {"arcommd", "nccl", "nccl-symmetric"}) {
        for (const char* mode : {"stream", "graph"}) {
          const nlohmann::json& figure = row[contender][mode];
          EXPECT_EQ(figure["wrong"], 0) << row;
          EXPECT_EQ(figure["checked_bytes"], row["bytes"]);
          EXPECT_GT(figure["p50_us"].get<double>(), 0);
          EXPECT_GE(figure["p99_us"].get<double>(), figure["p50_us"].get<double>());
        }
      }
    }
  }
}

TEST_F(GpuBench, FailsWhereAResultIsWrongWhoeversItIs) {
  start();
  for (const std::string who : {"arcommd", "nccl"}) {
    const ArctlRun run =
        bench(kNode, {"--peers", "nccl", "-e", "1K"}, {"ARCOMM_FAKE_WRONG=" + who});
    EXPECT_EQ(run.code, 1);
    EXPECT_TRUE(says(run, "6 elements are wrong")) << run.errors;
    EXPECT_TRUE(says(run, "rank 1, 1024 bytes of " + who + " on a stream, batch 1: element 255"))
        << run.errors;
    EXPECT_NE(run.output.find("#wrong"), std::string::npos);
  }
}

TEST_F(GpuBench, SaysWhyAPeerIsNotThere) {
  start();
  const ArctlRun run =
      bench(kNode, {"--peers", "nccl,nccl-symmetric", "--mode", "graph", "-e", "1K"},
            {"ARCOMM_FAKE_NO_WINDOWS=1"});
  EXPECT_EQ(run.code, 0) << run.errors;
  EXPECT_NE(run.output.find("# without nccl-symmetric: NCCL 2.27.3 gave no symmetric window here"),
            std::string::npos)
      << run.output;
}

TEST_F(GpuBench, FailsWhereARankDoesNotLeaveWell) {
  start();
  const ArctlRun failed = bench(kNode, {"-e", "1K"}, {"ARCOMM_FAKE_END=fails"});
  EXPECT_EQ(failed.code, 1) << failed.errors;
  EXPECT_TRUE(says(failed, "a fake fails")) << failed.errors;
  const ArctlRun crashed = bench(kNode, {"-e", "1K", "--json"}, {"ARCOMM_FAKE_END=crashes"});
  EXPECT_EQ(crashed.code, 1) << crashed.errors;
  EXPECT_TRUE(says(crashed, "was killed by signal 6 when it left")) << crashed.errors;
  EXPECT_EQ(crashed.json()["rows"].size(), 1u) << crashed.output;
}

// One rank that fails must not leave another one waiting for it.
TEST_F(GpuBench, GoesOnWithoutAPeerThatFailsOnOneRankOrOnAll) {
  start();
  const auto without = [&](const std::string& peer, const std::string& call) {
    const ArctlRun run =
        bench(kNode, {"--peers", peer, "-e", "1K"}, {"ARCOMM_FAKE_NCCL_FAILS=" + call});
    EXPECT_EQ(run.code, 0) << run.errors;
    const std::string title = "# without " + peer + ": ";
    const std::size_t at = run.output.find(title);
    return at == std::string::npos ? run.output
                                   : run.output.substr(at + title.size(), call.size() + 30);
  };
  EXPECT_EQ(without("nccl", "ncclCommInitRank").find("ncclCommInitRank: a fake fails"), 0u);
  EXPECT_EQ(without("nccl", "ncclGetUniqueId").find("ncclGetUniqueId: a fake fails"), 0u);
  EXPECT_EQ(without("nccl-symmetric", "ncclMemAlloc").find("rank 1: ncclMemAlloc: a fake"), 0u);
}
#endif

}  // namespace
}  // namespace arcomm::support
