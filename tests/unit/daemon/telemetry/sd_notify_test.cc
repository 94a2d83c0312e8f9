#include "daemon/telemetry/sd_notify.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <thread>

#include "tests/unit/daemon/telemetry/notify_listener.h"
#include "tests/unit/daemon/telemetry/temporary_folder.h"

namespace arcomm {
namespace {

using ::testing::MatchesRegex;

TEST(ServiceManager, SendsEachStateAsSystemdReadsIt) {
  const TemporaryFolder folder;
  const NotifyListener systemd(folder.file("notify"));
  ServiceManager manager = ServiceManager::from_environment();
  ASSERT_TRUE(manager.is_present());
  EXPECT_TRUE(manager.ready("serving\n1 device"));
  EXPECT_EQ(systemd.heard(), "READY=1\nSTATUS=serving 1 device");
  EXPECT_TRUE(manager.reloading());
  EXPECT_THAT(systemd.heard(), MatchesRegex("RELOADING=1\nMONOTONIC_USEC=[0-9]+"));
  EXPECT_TRUE(manager.extend_timeout(std::chrono::seconds(2)));
  EXPECT_EQ(systemd.heard(), "EXTEND_TIMEOUT_USEC=2000000");
  EXPECT_TRUE(manager.ping_watchdog());
  EXPECT_EQ(systemd.heard(), "WATCHDOG=1");
  EXPECT_TRUE(manager.stopping("draining"));
  EXPECT_EQ(systemd.heard(), "STOPPING=1\nSTATUS=draining");
}

TEST(ServiceManager, StoresADescriptorUnderItsNameAndDropsItByThatName) {
  const TemporaryFolder folder;
  const NotifyListener systemd(folder.file("notify"));
  ServiceManager manager = ServiceManager::from_environment();
  int ends[2];
  ASSERT_EQ(::pipe2(ends, O_CLOEXEC), 0);
  const UniqueFd reading(ends[0]);
  EXPECT_TRUE(manager.store(ends[1], "recorder0"));
  ::close(ends[1]);
  UniqueFd kept;
  EXPECT_EQ(systemd.heard(&kept), "FDSTORE=1\nFDNAME=recorder0");
  ASSERT_TRUE(kept);
  EXPECT_EQ(::write(kept.get(), "x", 1), 1);
  char byte = 0;
  EXPECT_EQ(::read(reading.get(), &byte, 1), 1) << "another descriptor was stored";
  EXPECT_TRUE(manager.unstore("recorder0"));
  EXPECT_EQ(systemd.heard(), "FDSTOREREMOVE=1\nFDNAME=recorder0");
}

TEST(ServiceManager, WaitsForRoomWhereALostMessageWouldEndTheService) {
  const TemporaryFolder folder;
  const NotifyListener systemd(folder.file("notify"));
  ServiceManager manager = ServiceManager::from_environment();
  int taken = 0;
  while (manager.unstore("rings-0") && taken < 100'000) ++taken;
  ASSERT_LT(taken, 100'000) << "the queue has no end";
  EXPECT_FALSE(manager.unstore("rings-0", ServiceManager::Delivery::Patient)) << "waits for ever";
  std::thread reader([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    systemd.heard();
  });
  EXPECT_TRUE(manager.ready("serving"));
  reader.join();
}

TEST(ServiceManager, ReachesAnAbstractSocket) {
  const NotifyListener systemd("@arcomm-notify-test-" + std::to_string(::getpid()));
  EXPECT_TRUE(ServiceManager::from_environment().status("here"));
  EXPECT_EQ(systemd.heard(), "STATUS=here");
}

TEST(ServiceManager, DoesNothingWithoutSystemd) {
  ::unsetenv("NOTIFY_SOCKET");
  ServiceManager manager = ServiceManager::from_environment();
  EXPECT_FALSE(manager.is_present());
  EXPECT_FALSE(manager.ready("nobody listens"));
  EXPECT_FALSE(manager.watchdog_interval());
}

TEST(ServiceManager, TakesTheWatchdogOnlyWhenItIsMeantForThisProcess) {
  const TemporaryFolder folder;
  const NotifyListener systemd(folder.file("notify"));
  ::setenv("WATCHDOG_USEC", "20000000", 1);
  ::setenv("WATCHDOG_PID", "1", 1);
  EXPECT_FALSE(ServiceManager::from_environment().watchdog_interval());
  ::setenv("WATCHDOG_PID", std::to_string(::getpid()).c_str(), 1);
  EXPECT_EQ(ServiceManager::from_environment().watchdog_interval(), std::chrono::seconds(20));
  ::setenv("WATCHDOG_USEC", "soon", 1);
  EXPECT_FALSE(ServiceManager::from_environment().watchdog_interval());
  ::unsetenv("WATCHDOG_USEC");
  ::unsetenv("WATCHDOG_PID");
}

// Descriptors 3 and 4 are somebody else's in the test process: act in a child, report by its exit
// status.
int in_child(const std::function<int()>& act) {
  const pid_t child = ::fork();
  if (child == 0) ::_exit(act());
  int status = 0;
  ::waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

TEST(InheritedSockets, CarryTheirNamesAndPathsAndHideFromChildren) {
  const TemporaryFolder folder;
  EXPECT_EQ(in_child([&folder] {
              sockaddr_un name{};
              name.sun_family = AF_UNIX;
              const std::string path = folder.file("client.sock");
              std::strncpy(name.sun_path, path.c_str(), sizeof(name.sun_path) - 1);
              const int client = ::socket(AF_UNIX, SOCK_STREAM, 0);
              if (::bind(client, reinterpret_cast<sockaddr*>(&name), sizeof(name)) != 0) return 10;
              const int other = ::socket(AF_UNIX, SOCK_SEQPACKET, 0);
              if (::dup2(other, 60) < 0 || ::dup2(client, 3) < 0 || ::dup2(60, 4) < 0) return 11;
              ::setenv("LISTEN_PID", std::to_string(::getpid()).c_str(), 1);
              ::setenv("LISTEN_FDS", "2", 1);
              ::setenv("LISTEN_FDNAMES", "client:descriptors", 1);
              auto sockets = inherited_sockets();
              if (!sockets || sockets->size() != 2) return 1;
              if ((*sockets)[0].name != "client" || (*sockets)[1].name != "descriptors") return 2;
              if ((*sockets)[0].path != path || !(*sockets)[1].path.empty()) return 3;
              if ((::fcntl(3, F_GETFD) & FD_CLOEXEC) == 0) return 4;
              return std::getenv("LISTEN_FDS") == nullptr ? 0 : 5;
            }),
            0);
}

TEST(InheritedSockets, AreNoneWhenMeantForAnotherProcess) {
  EXPECT_EQ(in_child([] {
              ::setenv("LISTEN_PID", "1", 1);
              ::setenv("LISTEN_FDS", "2", 1);
              const auto sockets = inherited_sockets();
              return sockets && sockets->empty() ? 0 : 1;
            }),
            0);
}

TEST(InheritedSockets, RefuseAPromiseThatIsNotKept) {
  EXPECT_EQ(in_child([] {
              ::setenv("LISTEN_PID", std::to_string(::getpid()).c_str(), 1);
              ::setenv("LISTEN_FDS", "many", 1);
              if (inherited_sockets()) return 1;
              ::setenv("LISTEN_FDS", "61", 1);
              for (int fd = 3; fd < 64; ++fd) ::close(fd);
              return inherited_sockets() ? 2 : 0;
            }),
            0);
}

}  // namespace
}  // namespace arcomm
