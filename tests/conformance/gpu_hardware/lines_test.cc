// What GpuLauncher promises of try_atomic_128b_stores(): a verdict in time, and GPUs that serve
// afterwards.
#include "tests/conformance/gpu_hardware/fixture.h"

namespace arcomm {
namespace {

class GpuLinesConformance : public GpuHardwareConformance {
 protected:
  // From `writer`'s GPU to `reader`'s, which may be the same.
  Status try_stores(Rank writer, Rank reader, std::chrono::nanoseconds timeout) {
    const Memory& memory = more_.emplace_back(cleared(reader, kLl128TestBytes));
    const int from[] = {seat(writer).device->ordinal()};
    return launcher(reader).try_atomic_128b_stores(from, memory.data(), timeout);
  }
  void expect_serving() {
    for (Rank rank = 0; rank < kRanks; ++rank) {
      EXPECT_TRUE(is_idle(rank));
      EXPECT_TRUE(launcher(rank).health());
    }
    launch_all();
    expect_done();
    expect_sums(0);
    expect_idle();
  }
};

TEST_P(GpuLinesConformance, StoresArriveWholeOrTheErrorCountsTheTornOnes) {
  for (Rank writer = 0; writer < kRanks; ++writer) {
    for (Rank reader = 0; reader < kRanks; ++reader) {
      const Status tried = try_stores(writer, reader, kPatience);
      if (tried) continue;
      EXPECT_EQ(name_of(tried.error().code), name_of(ErrorCode::Unavailable));
      EXPECT_EQ(name_of(tried.error().reason), name_of(Reason::Unsupported));
      EXPECT_NE(tried.error().message.find("torn"), std::string::npos) << tried.error().message;
    }
  }
  expect_serving();
}

TEST_P(GpuLinesConformance, SeveralWritersAtATimeHaveOneVerdict) {
  const Memory& memory = more_.emplace_back(cleared(1, 3 * kLl128TestBytes));
  const int from[] = {seat(0).device->ordinal(), seat(1).device->ordinal(),
                      seat(0).device->ordinal()};
  const Status tried = launcher(1).try_atomic_128b_stores(from, memory.data(), kPatience);
  if (!tried) {
    EXPECT_EQ(name_of(tried.error().code), name_of(ErrorCode::Unavailable))
        << tried.error().message;
  }
  expect_serving();
}

TEST_P(GpuLinesConformance, AVerdictIsTheSameAgainInMemoryThatHasServed) {
  const Memory& memory = more_.emplace_back(cleared(1, kLl128TestBytes));
  const auto verdict = [&] {
    const int from[] = {seat(0).device->ordinal()};
    return launcher(1).try_atomic_128b_stores(from, memory.data(), kPatience).ok();
  };
  const bool first = verdict();
  for (int again = 0; again < 3; ++again) EXPECT_EQ(verdict(), first);
  expect_serving();
}

TEST_P(GpuLinesConformance, WhereTimeIsTooShortNobodyKnowsAndTheErrorSaysSo) {
  const auto since = std::chrono::steady_clock::now();
  const Status tried = try_stores(0, 1, std::chrono::nanoseconds(1));
  ASSERT_FALSE(tried);
  EXPECT_EQ(name_of(tried.error().code), name_of(ErrorCode::DeadlineExceeded));
  EXPECT_EQ(name_of(tried.error().reason), name_of(Reason::Timeout));
  EXPECT_LT(std::chrono::steady_clock::now() - since, kPatience);
  expect_serving();
}

INSTANTIATE_TEST_SUITE_P(Hardware, GpuLinesConformance, testing::ValuesIn(all_gpu_hardware()),
                         [](const auto& tested) { return tested.param.name; });

}  // namespace
}  // namespace arcomm
