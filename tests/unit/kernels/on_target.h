// Tests that run once per instruction set. Not thread-safe: the choice of the set is the process's.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

#include "hwy/highway.h"
#include "tests/unit/kernels/sample_operation.h"

namespace arcomm {

// Every instruction set that was compiled and that this machine runs, the scalar fallback included.
inline std::vector<std::int64_t> runnable_targets() {
  std::vector<std::int64_t> targets;
  std::int64_t left = (hwy::SupportedTargets() | HWY_SCALAR | HWY_EMU128) & HWY_TARGETS;
  for (; left != 0; left &= left - 1) targets.push_back(left & -left);
  return targets;
}

class OnTarget : public testing::TestWithParam<std::int64_t> {
 protected:
  void SetUp() override {
    hwy::SetSupportedTargetsForTest(GetParam());
    hwy::GetChosenTarget().Update(hwy::SupportedTargets());
  }
  void TearDown() override {
    hwy::SetSupportedTargetsForTest(0);
    hwy::GetChosenTarget().Update(hwy::SupportedTargets());
  }
};

}  // namespace arcomm
