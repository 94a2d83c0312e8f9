// What breaks around an operation, and what everybody is told: the ground under the worker's fault
// tests. After each fault a clean AllReduce works.
#pragma once

#include <string>
#include <utility>

#include "tests/unit/daemon/exec/worker/worker_fixture.h"

namespace arcomm::test {

using std::chrono::seconds;
using std::chrono::steady_clock;

class WorkerFaults : public WorkerTest {
 protected:
  // A clean AllReduce between fresh clients.
  void expect_serving() {
    auto ranks = group(2);
    for (Client* rank : ranks) rank->call(16);
    for (Client* rank : ranks) {
      const auto completion = rank->next();
      ASSERT_TRUE(completion.has_value());
      EXPECT_EQ(code_of(*completion), ErrorCode::Ok) << completion->detail;
    }
  }
  void wait_for_pending(std::uint64_t operations) {
    while (inspect().operations_pending < operations) std::this_thread::yield();
  }
  void expect_end(Client& rank, ErrorCode code, Reason reason, Rank culprit,
                  const std::string& part) {
    const auto completion = rank.next();
    ASSERT_TRUE(completion.has_value());
    EXPECT_EQ(name_of(code_of(*completion)), name_of(code)) << completion->detail;
    EXPECT_EQ(name_of(reason_of(*completion)), name_of(reason)) << completion->detail;
    EXPECT_EQ(completion->culprit_rank, culprit) << completion->detail;
    EXPECT_NE(std::string(completion->detail).find(part), std::string::npos) << completion->detail;
  }
  // Submitted by rank 0 of two; the other rank hears of the refusal when it calls.
  void expect_refused(Client& bad, Client& other, const ring::WorkRequest& request, ErrorCode code,
                      Reason reason, const std::string& part) {
    other.call(4);
    wait_for_pending(1);
    bad.submit(request);
    expect_end(bad, code, reason, 0, part);
    expect_end(other, ErrorCode::FailedPrecondition, reason, 0, "refused on rank 0");
    other.call(4);  // the communicator goes on
    bad.call(4);
    expect_end(bad, ErrorCode::Ok, Reason::None, kNoRank, "");
    expect_end(other, ErrorCode::Ok, Reason::None, kNoRank, "");
  }
};

}  // namespace arcomm::test
