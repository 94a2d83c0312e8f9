// What failing operations leave in the log: so many lines a second for each session, and a number.
#include <fstream>
#include <functional>
#include <regex>

#include "daemon/telemetry/log/log.h"
#include "daemon/telemetry/log/log_budget.h"
#include "tests/unit/daemon/exec/worker/worker_fixture.h"
#include "tests/unit/daemon/telemetry/temporary_folder.h"

namespace arcomm::test {
namespace {

class WorkerFailureLog : public WorkerTest {
 protected:
  void SetUp() override {
    ASSERT_TRUE(log::start({.file = path_}));
    WorkerTest::SetUp();
  }
  void TearDown() override {
    WorkerTest::TearDown();
    log::stop();
  }
  static void refuse_times(Client& client, int requests) {
    for (int i = 0; i < requests; ++i) {
      client.submit(client.request(4));  // of a communicator that there is not
      ASSERT_TRUE(client.next().has_value());
    }
  }
  int lines_with(const std::string& text) const {
    int count = 0;
    each_line([&](const std::string& line) { count += line.find(text) != line.npos ? 1 : 0; });
    return count;
  }
  int said_to_be_left_out() const {
    const std::regex pattern("session 0\\.1 \\(pid 800\\): ([0-9]+) more failed or refused");
    int sum = 0;
    each_line([&](const std::string& line) {
      std::smatch found;
      if (std::regex_search(line, found, pattern)) sum += std::stoi(found[1]);
    });
    return sum;
  }

 private:
  void each_line(const std::function<void(const std::string&)>& look) const {
    EXPECT_TRUE(log::flush(5000));
    std::ifstream file(path_);
    for (std::string line; std::getline(file, line);) look(line);
  }

  TemporaryFolder folder_;
  const std::string path_ = folder_.file("log");
};

TEST_F(WorkerFailureLog, AFloodOfOneSessionIsCutAndCountedAndHidesNobodyElses) {
  constexpr int kRequests = 300;
  Client& flood = client();
  Client& other = client();
  refuse_times(flood, kRequests);
  refuse_times(other, 1);
  ASSERT_TRUE(close(flood, Reason::None).ok());
  const int logged = lines_with("session 0.1 (pid 800): request refused");
  EXPECT_GE(logged, LogBudget::kLinesPerSecond);
  EXPECT_EQ(logged + said_to_be_left_out(), kRequests);
  EXPECT_EQ(lines_with("session 1.1 (pid 801): request refused"), 1);
}

}  // namespace
}  // namespace arcomm::test
