// The service manager's watchdog follows real progress: a worker that stands still with work at
// hand silences it. Fault matrix 9, without a service manager; with one: tests/compose/systemd.
#include <gtest/gtest.h>
#include <sys/ptrace.h>
#include <sys/wait.h>

#include <cstdlib>
#include <filesystem>

#include "tests/integration/node_test.h"

namespace arcomm::support {
namespace {

class ServiceWatchdog : public NodeTest {
 protected:
  void start_watched(std::vector<std::string> environment) {
    DaemonProcess::Options options;
    options.environment = std::move(environment);
    options.environment.emplace_back("WATCHDOG_USEC=600000");
    options.settings["watchdog.stall_ms"] = "500";
    start(options);
  }
  std::size_t pings() {
    std::size_t count = 0;
    for (const std::string& message : node().notifications())
      count += message.find("WATCHDOG=1") != std::string::npos;
    return count;
  }
};

TEST_F(ServiceWatchdog, IsPingedWhileTheDaemonIsIdleAndWhileItWorks) {
  start_watched({});
  EXPECT_TRUE(eventually(kPrompt, [&] { return pings() >= 3; }));
  const Clients clients = start_ranks(node(), 2);
  const std::size_t before = pings();
  expect_all_ok(clients, "loop c0 100000 float32 sum n=2000", milliseconds(60000));
  EXPECT_TRUE(eventually(kPrompt, [&] { return pings() >= before + 2; }));
}

TEST_F(ServiceWatchdog, IsPingedWhileARankKeepsTheOthersWaiting) {
  start_watched({});
  const Clients clients = start_ranks(node(), 2, "init 20000");
  clients[0]->tell("allreduce c0 10 float32 sum");
  ::usleep(1'500'000);
  const std::size_t before = pings();
  // Waiting for a client is no stall: the worker turns, though it has work.
  EXPECT_TRUE(eventually(kPrompt, [&] { return pings() >= before + 3; }));
  clients[1]->expect_ok("allreduce c0 10 float32 sum");
  EXPECT_TRUE(clients[0]->hear().ok());
}

TEST_F(ServiceWatchdog, IsNotPingedAnyMoreByADaemonWhoseWorkerIsFrozen) {  // 9
  start_watched({"ARCOMM_FAILPOINT=worker.freeze"});
  const Clients clients = start_ranks(node(), 2, "init 3000");
  const std::vector<Reply> replies =
      ask_all(clients, "allreduce c0 10000 float32 sum", milliseconds(3000) + kPrompt);
  if (replies[0].ok()) {
    GTEST_SKIP() << "this build of arcommd has no failpoints (ARCOMM_FAILPOINTS)";
  }
  for (const Reply& reply : replies) {
    ASSERT_TRUE(reply.heard) << "a client hangs with the daemon";
    EXPECT_TRUE(reply.code == arcDeadlineExceeded || reply.code == arcUnavailable)
        << reply.to_string();
    EXPECT_LT(reply.took, milliseconds(3000) + kSlack);
  }
  expect_log("has stood still for more than 500 ms");
  const std::size_t before = pings();
  ::usleep(1'500'000);
  EXPECT_EQ(pings(), before) << "the watchdog is pinged for a worker that stands still";
  // Only the worker stands still: what it was at can be seen, and kept.
  wait_in_flight(1);
  node().signal(SIGUSR1);
  expect_log("flight recorder of host:0 written to " + node().state_dir());
  node().kill();
  const std::string log = node().log();
  const std::size_t path = log.find(node().state_dir() + "/flight-");
  ASSERT_NE(path, std::string::npos);
  const std::string recorded = read_text(log.substr(path, log.find('\n', path) - path));
  const auto is_recorded = [&recorded](const auto& client) {
    return recorded.find("\"pid\":" + std::to_string(client->pid())) != std::string::npos;
  };
  EXPECT_TRUE(is_recorded(clients[0]) || is_recorded(clients[1])) << recorded;  // the first to come
  // As the service manager would.
  node_.reset();
  start();
}

// All of them: while one turns, calls are answered.
TEST_F(ServiceWatchdog, IsNotPingedAnyMoreWhenGrpcsThreadsStandStill) {  // 46
  start_watched({});
  EXPECT_TRUE(eventually(kPrompt, [&] { return pings() >= 6; }));
  std::vector<pid_t> stopped;
  const std::string tasks = "/proc/" + std::to_string(node().pid()) + "/task";
  for (const auto& task : std::filesystem::directory_iterator(tasks)) {
    if (read_text(task.path().string() + "/comm") != "arc-rpc\n") continue;
    const pid_t thread = std::atoi(task.path().filename().c_str());
    if (::ptrace(PTRACE_SEIZE, thread, nullptr, nullptr) != 0)
      GTEST_SKIP() << "may not stop a thread of another process";
    ASSERT_EQ(::ptrace(PTRACE_INTERRUPT, thread, nullptr, nullptr), 0);
    ASSERT_EQ(::waitpid(thread, nullptr, __WALL), thread);
    stopped.push_back(thread);
  }
  ASSERT_FALSE(stopped.empty());
  expect_log("the control plane's gRPC server has stood still for more than 500 ms");
  const std::size_t before = pings();
  ::usleep(1'500'000);
  EXPECT_EQ(pings(), before) << "the watchdog is pinged for a server that does not answer";
  for (const pid_t thread : stopped)
    ASSERT_EQ(::ptrace(PTRACE_DETACH, thread, nullptr, nullptr), 0);
  EXPECT_TRUE(eventually(kPrompt, [&] { return pings() >= before + 2; }));
  expect_log("the control plane's gRPC server moves again");
}

}  // namespace
}  // namespace arcomm::support
