#include <numeric>

#include "tests/unit/daemon/exec/worker/worker_fixture.h"

namespace arcomm::test {
namespace {

TEST_F(WorkerTest, ReducesTheRequestsOfTwoSessionsAndTellsBoth) {
  Client& zero = client();
  Client& one = client();
  SharedBytes& a = zero.memory(8192);
  SharedBytes& b = one.memory(8192);
  zero.recv_offset = one.recv_offset = 4096;
  form({&zero, &one});
  for (int i = 0; i < 8; ++i) {
    a.as<float>()[i] = static_cast<float>(i);
    b.as<float>()[i] = 100.0f;
  }
  zero.call(8);
  one.call(8);
  for (Client* rank : {&zero, &one}) {
    const auto completion = rank->next();
    ASSERT_TRUE(completion.has_value());
    EXPECT_EQ(code_of(*completion), ErrorCode::Ok) << completion->detail;
    EXPECT_EQ(completion->ticket, 1000u);
    EXPECT_EQ(completion->stage, ring::Stage::Done);
    EXPECT_EQ(completion->culprit_rank, kNoRank);
  }
  for (int i = 0; i < 8; ++i) {
    EXPECT_EQ(a.as<float>(4096)[i], 100.0f + static_cast<float>(i));
    EXPECT_EQ(b.as<float>(4096)[i], 100.0f + static_cast<float>(i));
  }
}

TEST_F(WorkerTest, WakesUpForARequestAfterItWentToSleep) {
  auto ranks = group(2);
  for (int round = 0; round < 20; ++round) {
    std::this_thread::sleep_for(milliseconds(2));  // far beyond the spin
    for (Client* rank : ranks) rank->call(4);
    for (Client* rank : ranks) {
      const auto completion = rank->next(std::chrono::seconds(20));
      ASSERT_TRUE(completion.has_value());
      EXPECT_EQ(code_of(*completion), ErrorCode::Ok);
    }
  }
  EXPECT_GT(metrics_->worker_sleeps.value(), 0u);
}

TEST_F(WorkerTest, WakesEveryClientThatSleepsOnItsAnswer) {
  auto ranks = group(3);
  for (Client* rank : ranks) {
    ring::FutexDoorbell(rank->control().completions.consumer_sleeps).arm();
    rank->call(4);
  }
  for (Client* rank : ranks) {
    std::atomic<std::uint32_t>& sleeps = rank->control().completions.consumer_sleeps;
    const auto began = std::chrono::steady_clock::now();
    ring::FutexDoorbell(sleeps).sleep(std::chrono::seconds(20));
    EXPECT_LT(std::chrono::steady_clock::now() - began, std::chrono::seconds(10));
    EXPECT_EQ(sleeps.load(), 0u);  // taken by the worker's ring
    const auto completion = rank->next();
    ASSERT_TRUE(completion.has_value());
    EXPECT_EQ(code_of(*completion), ErrorCode::Ok);
  }
}

}  // namespace
}  // namespace arcomm::test
