// Checks first; figures only behind checks that all passed. With --gtest_list_tests or a filter of
// its own the figures are left out.
#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>

#include "tests/gpu/bench/network_figures.h"

int main(int argc, char** argv) {
  // Code that is loaded while kernels wait for each other would wait for them.
  setenv("CUDA_MODULE_LOADING", "EAGER", 1);
  testing::InitGoogleTest(&argc, argv);
  const int failed = RUN_ALL_TESTS();
  std::fflush(stdout);
  if (failed != 0 || GTEST_FLAG_GET(filter) != "*" || GTEST_FLAG_GET(list_tests)) return failed;
  if (arcomm::gpu::print_network_figures()) return 0;
  std::printf("FAILED: the figures\n");
  return 1;
}
