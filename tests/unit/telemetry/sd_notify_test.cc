#include "daemon/telemetry/sd_notify.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <functional>

#include "tests/unit/telemetry/temporary_folder.h"

namespace arcomm {
namespace {

using ::testing::MatchesRegex;

// What systemd would be: a datagram socket that is told things.
class Listener {
 public:
  explicit Listener(const std::string& address)
      : fd_(::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0)) {
    sockaddr_un name{};
    name.sun_family = AF_UNIX;
    std::memcpy(name.sun_path, address.data(), address.size());
    if (address.front() == '@') name.sun_path[0] = '\0';
    const auto length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + address.size());
    EXPECT_EQ(::bind(fd_.get(), reinterpret_cast<sockaddr*>(&name), length), 0);
    ::setenv("NOTIFY_SOCKET", address.c_str(), 1);
  }
  ~Listener() { ::unsetenv("NOTIFY_SOCKET"); }
  std::string heard(UniqueFd* stored = nullptr) const {
    char text[512] = {};
    alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))];
    iovec part{.iov_base = text, .iov_len = sizeof(text) - 1};
    msghdr header{};
    header.msg_iov = &part;
    header.msg_iovlen = 1;
    if (stored != nullptr) {
      header.msg_control = control;
      header.msg_controllen = sizeof(control);
    }
    const ssize_t got = ::recvmsg(fd_.get(), &header, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
    const cmsghdr* rights = stored == nullptr ? nullptr : CMSG_FIRSTHDR(&header);
    if (rights != nullptr && rights->cmsg_type == SCM_RIGHTS) {
      int fd = -1;
      std::memcpy(&fd, CMSG_DATA(rights), sizeof(fd));
      stored->reset(fd);
    }
    return got < 0 ? "(nothing)" : std::string(text, static_cast<std::size_t>(got));
  }

 private:
  UniqueFd fd_;
};

TEST(ServiceManager, SendsEachStateAsSystemdReadsIt) {
  const TemporaryFolder folder;
  const Listener systemd(folder.file("notify"));
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

TEST(ServiceManager, StoresADescriptorInPlaceOfWhatBoreItsName) {
  const TemporaryFolder folder;
  const Listener systemd(folder.file("notify"));
  ServiceManager manager = ServiceManager::from_environment();
  int ends[2];
  ASSERT_EQ(::pipe2(ends, O_CLOEXEC), 0);
  const UniqueFd reading(ends[0]);
  EXPECT_TRUE(manager.store(ends[1], "recorder0"));
  ::close(ends[1]);
  EXPECT_EQ(systemd.heard(), "FDSTOREREMOVE=1\nFDNAME=recorder0");
  UniqueFd kept;
  EXPECT_EQ(systemd.heard(&kept), "FDSTORE=1\nFDNAME=recorder0");
  ASSERT_TRUE(kept);
  EXPECT_EQ(::write(kept.get(), "x", 1), 1);
  char byte = 0;
  EXPECT_EQ(::read(reading.get(), &byte, 1), 1) << "another descriptor was stored";
}

TEST(ServiceManager, ReachesAnAbstractSocket) {
  const Listener systemd("@arcomm-notify-test-" + std::to_string(::getpid()));
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
  const Listener systemd(folder.file("notify"));
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
