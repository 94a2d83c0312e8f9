// Logs that nobody takes and scrapes that nobody reads must not reach the data path. Fault
// matrix 37.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#include <cstring>

#include "tests/integration/node_test.h"

namespace arcomm::support {
namespace {

class Outputs : public NodeTest {
 protected:
  void expect_good_service() {
    const Clients clients = start_ranks(node(), 2);
    for (const Reply& reply : ask_all(clients, "allreduce c0 10000 float32 sum n=200")) {
      EXPECT_TRUE(reply.ok()) << reply.to_string();
      EXPECT_LT(reply.took, milliseconds(20000)) << "the outputs hold up the data path";
    }
    expect_metric_at_least("arcomm_operations_total", {"Ok"}, 400);
    EXPECT_GE(traced("Ok", clients[0]->pid()), 200u);
  }
  // Sessions come and go, and each says so in the log.
  void make_log_lines() {
    const auto client = ClientProcess::start(node());
    client->expect_ok("cycles session 300");
  }
};

TEST_F(Outputs, AFullDiskUnderTheLogCostsLinesAndNothingElse) {
  if (::access("/dev/full", W_OK) != 0) GTEST_SKIP() << "no /dev/full here";
  DaemonProcess::Options options;
  options.settings["log.file"] = "/dev/full";
  options.settings["log.level"] = "trace";
  start(options);
  make_log_lines();
  expect_metric_at_least("arcomm_log_lines_dropped_total", {}, 1);
  expect_good_service();
}

TEST_F(Outputs, APipeThatNobodyReadsCostsLinesAndNothingElse) {
  int ends[2];
  ASSERT_EQ(::pipe2(ends, O_CLOEXEC), 0);
  const UniqueFd unread(ends[0]);
  UniqueFd log(ends[1]);
  DaemonProcess::Options options;
  options.stderr_fd = log.get();
  options.settings["log.level"] = "trace";
  start(options);
  log.reset();
  make_log_lines();  // far more than the 64 KiB that a pipe holds
  make_log_lines();
  expect_good_service();
  for (int i = 0; i < 6; ++i) make_log_lines();
  expect_metric_at_least("arcomm_log_lines_dropped_total", {}, 1);
}

TEST_F(Outputs, AFifoWithoutAReaderAsLogFileDoesNotHoldUpTheStart) {
  ScratchFolder folder;
  const std::string fifo = folder / "log.fifo";
  ASSERT_EQ(::mkfifo(fifo.c_str(), 0600), 0);
  DaemonProcess::Options options;
  options.settings["log.file"] = fifo;
  options.expect_ready = false;
  auto daemon = DaemonProcess::start(options);
  ASSERT_NE(daemon, nullptr);
  // To serve without that log or to refuse with a reason are both right; to hang is not.
  if (daemon->wait_ready(milliseconds(10000))) {
    expect_clean_all_reduce(*daemon);
    daemon->stop();
  } else {
    const std::optional<Exit> exit = daemon->wait_exit(milliseconds(100));
    ASSERT_TRUE(exit.has_value()) << "the daemon hangs on its log file";
    EXPECT_NE(exit->code, 0);
    EXPECT_NE(daemon->log().find("log.fifo"), std::string::npos) << daemon->log();
  }
}

TEST_F(Outputs, AJournalThatGoesAwayTakesNothingWithIt) {
  int ends[2];
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
  UniqueFd journal(ends[0]), log(ends[1]);
  DaemonProcess::Options options;
  options.stderr_fd = log.get();
  start(options);
  log.reset();
  journal.reset();  // every write is now EPIPE
  make_log_lines();
  expect_good_service();
}

TEST_F(Outputs, ScrapesThatHangHoldUpNeitherOperationsNorOtherScrapes) {
  start();
  std::vector<UniqueFd> hanging;
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  const std::string path = node().metrics_socket();
  std::memcpy(address.sun_path, path.data(), path.size());
  for (int i = 0; i < 20; ++i) {
    UniqueFd fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    ASSERT_EQ(::connect(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)), 0);
    const std::string_view part = i % 3 == 0   ? ""
                                  : i % 3 == 1 ? "GET /met"
                                               : "GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n";
    [[maybe_unused]] const ssize_t sent = ::send(fd.get(), part.data(), part.size(), MSG_NOSIGNAL);
    hanging.push_back(std::move(fd));
  }
  expect_good_service();
  const auto asked = std::chrono::steady_clock::now();
  EXPECT_GE(scrape().value("arcomm_operations_total", {"Ok"}), 400);
  EXPECT_LT(std::chrono::steady_clock::now() - asked, milliseconds(4000));
  // Rubbish is answered or closed, and the next scrape works.
  for (const char* rubbish :
       {"\r\n\r\n", "POST /metrics HTTP/1.1\r\n\r\n", "GET /nothing HTTP/1.0\r\n\r\n"}) {
    const UniqueFd fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    ASSERT_EQ(::connect(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)), 0);
    [[maybe_unused]] const ssize_t sent =
        ::send(fd.get(), rubbish, std::strlen(rubbish), MSG_NOSIGNAL);
  }
  EXPECT_TRUE(scrape().has("arcomm_sessions"));
}

TEST_F(Outputs, TheFlightRecorderIsDumpedOnRequestBySignal) {
  start();
  const Clients clients = start_ranks(node(), 2);
  expect_all_ok(clients, "allreduce c0 1000 float32 sum n=10");
  node().signal(SIGUSR1);
  expect_log("flight-");
  expect_all_ok(clients, "allreduce c0 1000 float32 sum n=10");
}

}  // namespace
}  // namespace arcomm::support
