// Daemons that are killed, told to go, started twice, or started over what a crash left. Fault
// matrix 6, 8, 34, 35.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#include <atomic>
#include <cstring>
#include <filesystem>
#include <thread>

#include "tests/integration/node_test.h"

namespace arcomm::support {
namespace {

class DaemonDeath : public NodeTest {
 protected:
  // The next daemon over the same folders.
  void restart() {
    DaemonProcess::Options options;
    options.folder = folder_.path();
    node_.reset();
    start(options);
  }
  DaemonProcess::Options in_folder() {
    DaemonProcess::Options options;
    options.folder = folder_.path();
    return options;
  }
  ScratchFolder folder_;
};

TEST_F(DaemonDeath, AKilledDaemonFailsWhatWasInFlightAndItsClientsFindTheNextOne) {  // 6
  start(in_folder());
  const Clients clients = start_ranks(node(), 2, "init 8000");
  clients[0]->tell("allreduce c0 100000 float32 sum");
  wait_in_flight(1);
  const auto killed = std::chrono::steady_clock::now();
  node().kill();
  const Reply lost = clients[0]->hear(milliseconds(8000) + kSlack);
  EXPECT_EQ(lost.code, arcUnavailable) << lost.to_string();
  EXPECT_EQ(lost.reason, arcReasonDaemonLost) << lost.to_string();
  EXPECT_LT(std::chrono::steady_clock::now() - killed, kPrompt)
      << "the loss was noticed only by the deadline";
  const Reply gone = clients[1]->ask("allreduce c0 10 float32 sum");
  EXPECT_EQ(gone.code, arcUnavailable) << gone.to_string();

  const auto started = std::chrono::steady_clock::now();
  restart();
  expect_all_ok(clients, "rebuild c0");
  expect_all_ok(clients, "allreduce c0 100000 float32 sum n=5");
  EXPECT_LT(std::chrono::steady_clock::now() - started, std::chrono::seconds(5));
  // What the killed one counted and recorded is gone with it; the next one begins anew.
  EXPECT_EQ(scrape().value("arcomm_sessions_opened_total"), 2);
  for (const auto& client : clients) {
    EXPECT_EQ(traced("Ok", client->pid()), 5u);
    const std::string attached = "attached: pid " + std::to_string(client->pid());
    EXPECT_TRUE(eventually(kPrompt, [&] { return count_of(node().log(), attached) == 2; }));
  }
}

TEST_F(DaemonDeath, ADaemonThatLosesADeviceEndsAtOnceAndItsClientsFindTheNextOne) {  // 10
  DaemonProcess::Options options = in_folder();
  options.environment = {"ARCOMM_FAILPOINT=worker.lost"};
  start(options);
  const Clients clients = start_ranks(node(), 2, "init 8000");
  const auto begun = std::chrono::steady_clock::now();
  const Reply lost = clients[0]->ask("allreduce c0 1000 float32 sum");
  if (lost.code == arcDeadlineExceeded)
    GTEST_SKIP() << "this build of arcommd has no failpoints (ARCOMM_FAILPOINTS)";
  EXPECT_EQ(lost.code, arcUnavailable) << lost.to_string();
  const std::optional<Exit> exit = node().wait_exit(kPrompt);
  ASSERT_TRUE(exit.has_value()) << "nothing would start a new daemon";
  EXPECT_EQ(exit->code, 1);
  EXPECT_EQ(exit->signal, 0);
  EXPECT_LT(std::chrono::steady_clock::now() - begun, std::chrono::seconds(1));
  expect_log("a GPU is lost: ending");
  expect_log("stopped");

  restart();
  expect_all_ok(clients, "rebuild c0");
  expect_all_ok(clients, "allreduce c0 100000 float32 sum n=5");
}

TEST_F(DaemonDeath, ALateRankFindsTheNextDaemonThoughItsPeerWasThereFirst) {  // 6
  start(in_folder());
  const Clients clients = start_ranks(node(), 2, "init 8000");
  node().kill();
  restart();
  clients[0]->tell("rebuild c0");
  expect_metric_settles("arcomm_sessions", 1);  // the place that this rank's session had is taken
  EXPECT_TRUE(clients[1]->ask("rebuild c0").ok());
  EXPECT_TRUE(clients[0]->hear(milliseconds(8000) + kSlack).ok());
  expect_all_ok(clients, "allreduce c0 100000 float32 sum");
}

TEST_F(DaemonDeath, MemoryOfTheLibraryOutlivesTheDaemonThatMadeIt) {  // 6
  start(in_folder());
  const Clients clients = start_ranks(node(), 2, "init 8000");
  expect_all_ok(clients, "alloc kept 1048576");
  expect_all_ok(clients, "plan p c0 1000 float32 sum mem=alloc");
  node().kill();
  for (const Reply& reply : ask_all(clients, "allreduce c0 10 float32 sum"))
    EXPECT_EQ(reply.code, arcUnavailable);
  restart();
  expect_all_ok(clients, "rebuild c0");
  expect_all_ok(clients, "allreduce c0 10007 float32 sum mem=alloc");
  expect_all_ok(clients, "free kept");
}

TEST_F(DaemonDeath, WithoutADaemonAClientIsToldAtOnceWhereItLooked) {
  start(in_folder());
  const auto client = ClientProcess::start(node());
  node().kill();
  const Reply reply = client->ask("init 5000");
  EXPECT_EQ(reply.code, arcUnavailable) << reply.to_string();
  EXPECT_EQ(reply.reason, arcReasonNotRunning) << reply.to_string();
  EXPECT_NE(reply.message.find(node().runtime_dir()), std::string::npos) << reply.message;
  EXPECT_EQ(arctl(node(), {"status"}).code, 3);
}

TEST_F(DaemonDeath, ARankThatGaveUpWithoutADescriptorLeftTellsItsPeersOnceItHasOne) {
  start(in_folder());
  const Clients clients = start_ranks(node(), 2, "init 5000");
  // What lies idle of this process's connections is the one that it asks for staging memory on; to
  // say that it gave up waiting for that it needs another.
  node().freeze();
  rlimit before{};
  ASSERT_EQ(::prlimit(clients[0]->pid(), RLIMIT_NOFILE, nullptr, &before), 0);
  const rlimit none{3, before.rlim_max};  // standard input, output and error
  ASSERT_EQ(::prlimit(clients[0]->pid(), RLIMIT_NOFILE, &none, nullptr), 0);
  const Reply late = clients[0]->ask("allreduce c0 1000 float32 sum");
  EXPECT_EQ(late.code, arcDeadlineExceeded) << late.to_string();
  ASSERT_EQ(::prlimit(clients[0]->pid(), RLIMIT_NOFILE, &before, nullptr), 0);
  node().thaw();

  clients[1]->tell("allreduce c0 1000 float32 sum");
  wait_in_flight(1);
  EXPECT_TRUE(eventually(kPrompt, [&] {
    const Reply revoked = clients[0]->ask("allreduce c0 1000 float32 sum");
    EXPECT_EQ(revoked.code, arcFailedPrecondition) << revoked.to_string();
    return scrape().value("arcomm_communicators") == 0;
  })) << "the daemon was never told";
  const Reply aborted = clients[1]->hear();
  EXPECT_EQ(aborted.code, arcAborted) << aborted.to_string();
  EXPECT_EQ(aborted.rank, 0);
  EXPECT_LT(aborted.took, milliseconds(5000)) << "told only by the deadline";
  expect_all_ok(clients, "rebuild c0");
  expect_all_ok(clients, "allreduce c0 1000 float32 sum");
}

TEST_F(DaemonDeath, ToldToStopItLetsBegunOperationsEnd) {  // 8
  DaemonProcess::Options options = in_folder();
  options.settings["shutdown.drain_timeout_ms"] = "5000";
  start(options);
  const Clients clients = start_ranks(node(), 2, "init 20000");
  expect_all_ok(
      clients,
      "allreduce c0 10000 float32 sum");  // memory is known now: a stopping daemon gives none
  clients[0]->expect_ok("async begun c0 1000 float32 sum");
  wait_in_flight(1);
  node().signal(SIGTERM);
  EXPECT_TRUE(node().wait_for_notification("STOPPING=1"));
  const Reply last = clients[1]->ask("allreduce c0 1000 float32 sum");
  EXPECT_TRUE(last.ok()) << last.to_string();
  EXPECT_TRUE(clients[0]->ask("wait begun").ok());
  const std::optional<Exit> exit = node().wait_exit(milliseconds(5000) + kSlack);
  ASSERT_TRUE(exit.has_value());
  EXPECT_TRUE(exit->clean());
  expect_log("SIGTERM: stopping");
  expect_log("stopped");
  // Metrics and recorder went with it: asked again is the next one.
  restart();
}

TEST_F(DaemonDeath, ToldToStopItEndsInOrderWhileClientsKeepComing) {  // 8
  start(in_folder());
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::strncpy(address.sun_path, node().client_socket().c_str(), sizeof(address.sun_path) - 1);
  std::atomic<bool> over{false};
  std::thread caller([&] {
    while (!over) {  // each comes and leaves at once
      const UniqueFd connection(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
      static_cast<void>(::connect(connection.get(), reinterpret_cast<const sockaddr*>(&address),
                                  sizeof(address)));
    }
  });
  for (int i = 0; i < 10; ++i) {
    std::this_thread::sleep_for(milliseconds(20));
    node().stop();  // expects exit status 0
    restart();
  }
  over = true;
  caller.join();
}

TEST_F(DaemonDeath, ToldToStopItFailsWhatDoesNotEndInTimeAndRefusesNewWork) {  // 8
  DaemonProcess::Options options = in_folder();
  options.settings["shutdown.drain_timeout_ms"] = "3000";
  start(options);
  const Clients clients = start_ranks(node(), 2, "init 20000");
  form_communicator(clients, "c1");
  expect_all_ok(clients, "allreduce c0 10000 float32 sum");
  expect_all_ok(clients, "allreduce c1 10000 float32 sum");
  clients[0]->expect_ok("async stuck c0 1000 float32 sum");
  wait_in_flight(1);
  const auto told = std::chrono::steady_clock::now();
  node().signal(SIGTERM);
  ASSERT_TRUE(node().wait_for_notification("STOPPING=1"));
  EXPECT_TRUE(node().wait_for_notification("EXTEND_TIMEOUT_USEC=8000000"))
      << "systemd would kill a drain that is longer than TimeoutStopSec=";
  const Reply refused = clients[1]->ask("allreduce c1 10 float32 sum");
  EXPECT_EQ(refused.code, arcUnavailable) << refused.to_string();
  EXPECT_EQ(refused.reason, arcReasonShuttingDown) << refused.to_string();
  // While it drains, an operator sees both.
  expect_metric_at_least("arcomm_rejected_total", {"ShuttingDown"}, 1);
  wait_in_flight(1);
  expect_trace("ShuttingDown", 1);
  const Reply failed = clients[0]->ask("wait stuck");
  EXPECT_EQ(failed.code, arcUnavailable) << failed.to_string();
  EXPECT_TRUE(failed.reason == arcReasonShuttingDown || failed.reason == arcReasonDaemonLost)
      << failed.to_string();
  const std::optional<Exit> exit = node().wait_exit(milliseconds(3000) + kPrompt);
  ASSERT_TRUE(exit.has_value());
  EXPECT_TRUE(exit->clean()) << exit->code << " signal " << exit->signal;
  EXPECT_LT(std::chrono::steady_clock::now() - told, milliseconds(3000) + 2 * kSlack + kPrompt);
  EXPECT_FALSE(std::filesystem::exists(node().client_socket()));
  expect_log("is revoked: the daemon shut down");
  restart();
}

TEST_F(DaemonDeath, ASecondDaemonGoesAwayAndLeavesTheFirstAlone) {  // 34
  start(in_folder());
  const Clients clients = start_ranks(node(), 2);
  struct stat before {
  }, after{};
  ASSERT_EQ(::stat(node().client_socket().c_str(), &before), 0);
  Ran second =
      run_to_end({daemon_binary(), "--set", "metrics.listen=", "--set", "device.backend=host"},
                 node().environment(), milliseconds(10000));
  ASSERT_TRUE(second.exit.has_value()) << "the second daemon runs beside the first";
  EXPECT_EQ(second.exit->code, 3) << "the unit's RestartPreventExitStatus= names 3";
  EXPECT_EQ(second.exit->signal, 0);
  EXPECT_NE((second.output + second.errors).find("already running"), std::string::npos)
      << second.errors;
  EXPECT_NE((second.output + second.errors).find(std::to_string(node().pid())), std::string::npos)
      << second.errors;
  ASSERT_EQ(::stat(node().client_socket().c_str(), &after), 0);
  EXPECT_EQ(before.st_ino, after.st_ino) << "the second daemon made the socket anew";
  // The first does not hear of it.
  expect_all_ok(clients, "allreduce c0 10000 float32 sum");
  EXPECT_EQ(scrape().value("arcomm_sessions"), 2);
  EXPECT_EQ(traced("Ok"), 2u);
  expect_clean_all_reduce(node());
}

TEST_F(DaemonDeath, SocketsAndLockOfACrashAreNoObstacle) {  // 35
  start(in_folder());
  node().kill();
  EXPECT_TRUE(std::filesystem::exists(node().client_socket()))
      << "nothing was left behind to start over";
  const auto started = std::chrono::steady_clock::now();
  restart();
  EXPECT_LT(std::chrono::steady_clock::now() - started, std::chrono::seconds(5));
  expect_log("ready: ");  // the killed one took its last lines with it
  expect_clean_all_reduce(node());
}

TEST_F(DaemonDeath, ADaemonKilledAgainAndAgainComesBackEachTime) {  // 6
  start(in_folder());
  const Clients clients = start_ranks(node(), 2, "init 10000");
  for (int round = 0; round < 5; ++round) {
    for (const auto& client : clients) client->tell("loop c0 50000 float32 sum n=1000000");
    ::usleep(static_cast<useconds_t>(20000 + round * 13000));
    node().kill();
    for (const auto& client : clients) {
      const Reply reply = client->hear(milliseconds(10000) + kSlack);
      EXPECT_EQ(reply.reason, arcReasonDaemonLost) << reply.to_string();
    }
    restart();
    expect_all_ok(clients, "rebuild c0");
  }
  expect_all_ok(clients, "allreduce c0 1000 float32 sum");
}

}  // namespace
}  // namespace arcomm::support
