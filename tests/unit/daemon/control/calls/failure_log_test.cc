// A client whose calls all fail does not fill the log.
#include <fstream>

#include "daemon/telemetry/log/log.h"
#include "daemon/telemetry/log/log_budget.h"
#include "tests/unit/daemon/control/control_fixture.h"

namespace arcomm::test {
namespace {

class FailureLog : public ControlTest {
 protected:
  void TearDown() override {
    log::stop();
    ControlTest::TearDown();
  }
  void fail_times(int calls) {
    v1::AttachReply reply;
    for (int i = 0; i < calls; ++i) ASSERT_FALSE(attach(reply, kRingAbiMajor + 1).status.ok());
  }
  int lines_with(std::string_view text) const {
    EXPECT_TRUE(log::flush(5000));
    std::ifstream file(path("log"));
    int count = 0;
    for (std::string line; std::getline(file, line);)
      count += line.find(text) != std::string::npos ? 1 : 0;
    return count;
  }
};

TEST_F(FailureLog, ALoopOfFailingCallsIsWorthSoManyLinesASecond) {
  constexpr int kCalls = 400;
  ASSERT_TRUE(log::start({.file = path("log")}));
  start();
  const auto began = std::chrono::steady_clock::now();
  fail_times(kCalls);
  const auto seconds =
      std::chrono::duration_cast<std::chrono::seconds>(std::chrono::steady_clock::now() - began)
          .count();
  const int logged = lines_with("Attach of pid");
  EXPECT_GE(logged, LogBudget::kLinesPerSecond);
  EXPECT_LE(logged, LogBudget::kLinesPerSecond * (seconds + 1));
  if (logged == kCalls) return;  // so slow that none was one too many
  std::this_thread::sleep_for(std::chrono::milliseconds(1001));
  fail_times(1);
  EXPECT_GE(lines_with("more failed calls of uid " + std::to_string(::getuid())), 1);
}

}  // namespace
}  // namespace arcomm::test
