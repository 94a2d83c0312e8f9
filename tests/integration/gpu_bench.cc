// `arctl bench --device gpu` where it cannot be had: what is missing is named, at once, and the
// node is as good as before.
#include <gtest/gtest.h>

#include "tests/integration/node_test.h"
#include "tests/support/child_process.h"

namespace arcomm::support {
namespace {

class GpuBench : public NodeTest {
 protected:
  // libraries: where CUDA's driver is looked for first; "": nowhere else than always.
  ArctlRun bench(const std::string& libraries, std::vector<std::string> more = {}) {
    std::vector<std::string> words = {arctl_binary(), "bench", "--device", "gpu", "-e", "1K"};
    words.insert(words.end(), more.begin(), more.end());
    std::vector<std::string> environment = node().environment();
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
  if (says(run, "the daemon serves no GPUs")) GTEST_SKIP() << "this machine has GPUs";
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

#ifdef ARCOMM_FAKE_CUDA_FOLDER
TEST_F(GpuBench, SaysThatTheDaemonServesNoGpus) {
  start();
  const ArctlRun run = bench(ARCOMM_FAKE_CUDA_FOLDER);
  EXPECT_EQ(run.code, 5) << run.errors;
  EXPECT_TRUE(says(run, "the daemon serves no GPUs")) << run.errors;
  EXPECT_TRUE(says(run, "arctl status")) << run.errors;
}

TEST_F(GpuBench, NamesTheGpuThatIsNotThere) {
  start();
  const ArctlRun run = bench(ARCOMM_FAKE_CUDA_FOLDER, {"--gpus", "0,7"});
  EXPECT_EQ(run.code, 1) << run.errors;
  EXPECT_TRUE(says(run, "rank 1: GPU 7 is wanted, and this process sees 2")) << run.errors;
  EXPECT_TRUE(says(run, "--gpus")) << run.errors;
}
#endif

}  // namespace
}  // namespace arcomm::support
