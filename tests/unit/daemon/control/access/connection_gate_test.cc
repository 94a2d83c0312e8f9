// Who gets past the sockets: their modes, what a crash left of them, and strangers.
#include <grp.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>

#include <cerrno>
#include <cstring>

#include "tests/support/sessions/descriptor_message.h"
#include "tests/unit/daemon/control/control_fixture.h"

namespace arcomm::test {
namespace {

TEST_F(ControlTest, SocketsHaveModesThatKeepStrangersOut) {
  settings_.access.group = "no-such-group-here";
  std::vector<std::string> warnings;
  const auto made = make_socket(SocketKind::Client, settings_.runtime_dir,
                                AccessGroups::look_up(settings_.access), warnings);
  ASSERT_TRUE(made);
  struct stat info {};
  ASSERT_EQ(::stat(path("client.sock").c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0600u);
  ASSERT_EQ(warnings.size(), 1u);
  EXPECT_NE(warnings[0].find("no-such-group-here"), std::string::npos) << warnings[0];
}

TEST_F(ControlTest, ReplacesAStaleSocket) {
  start();
  stop();
  ASSERT_EQ(::mknod(path("client.sock").c_str(), S_IFSOCK | 0600, 0), 0);
  start();
  EXPECT_EQ(status().backend(), "fake");
}

// Needs two uids, hence root: nobody (65534) is in no group of ours.
TEST_F(ControlTest, RefusesAForeignUidAtAcceptAndCountsIt) {
  if (::getuid() != 0) GTEST_FAIL() << "run this test as root: it connects as another uid";
  start();
  ASSERT_EQ(::chmod(settings_.runtime_dir.c_str(), 0755), 0);
  ASSERT_EQ(::chmod(path("fd.sock").c_str(), 0666), 0);
  const std::string socket_path = path("fd.sock");
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    if (::setgid(65534) != 0 || ::setuid(65534) != 0) ::_exit(2);
    FdClient connection(socket_path);
    if (!connection.connected()) ::_exit(3);
    const FdMessage message = fd_request(FdMessageKind::Fetch, 1);
    ::_exit(connection.ask(message) ? 4 : 0);  // 0: closed on us
  }
  int exit_status = -1;
  ASSERT_EQ(::waitpid(child, &exit_status, 0), child);
  EXPECT_EQ(WEXITSTATUS(exit_status), 0);
  EXPECT_EQ(metrics_.connections_refused.value(), 1u);
}

// By the groups that its process has, whether its uid has an account or not; and by the group that
// is configured now.
TEST_F(ControlTest, ServesAMemberOfTheGroupFromTheReloadOnThatNamesIt) {
  if (::getuid() != 0) GTEST_FAIL() << "run this test as root: it connects as another uid";
  const group* known = ::getgrnam("nogroup");
  ASSERT_NE(known, nullptr);
  const gid_t gid = known->gr_gid;
  settings_.access.group = "";
  start();
  ASSERT_EQ(::chmod(settings_.runtime_dir.c_str(), 0755), 0);
  const std::string socket_path = path("fd.sock");
  const auto is_served = [&] {
    const pid_t child = ::fork();
    if (child == 0) {
      if (::setgroups(1, &gid) != 0 || ::setgid(54'322) != 0 || ::setuid(54'321) != 0) ::_exit(2);
      FdClient connection(socket_path);
      ::_exit(connection.connected() && connection.ask(fd_request(FdMessageKind::Fetch, 1)) ? 0
                                                                                            : 1);
    }
    int ended = -1;
    return ::waitpid(child, &ended, 0) == child && ended == 0;
  };
  EXPECT_FALSE(is_served());
  settings_.access.group = "nogroup";
  plane_->use_settings(std::make_shared<const Settings>(settings_));
  EXPECT_TRUE(eventually(is_served));
  settings_.access.group = "no-such-group-here";
  plane_->use_settings(std::make_shared<const Settings>(settings_));
  EXPECT_TRUE(eventually([&] { return !is_served(); }));
}

// Not as nobody were here: the HTTP/2 frames of a server that goes away, with what to do.
TEST_F(ControlTest, TellsAForeignUidWhyItIsRefused) {
  if (::getuid() != 0) GTEST_FAIL() << "run this test as root: it connects as another uid";
  start();
  ASSERT_EQ(::chmod(settings_.runtime_dir.c_str(), 0755), 0);
  ASSERT_EQ(::chmod(path("admin.sock").c_str(), 0666), 0);
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  const std::string socket_path = path("admin.sock");
  std::memcpy(address.sun_path, socket_path.c_str(), socket_path.size() + 1);
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    const int fd = ::socket(AF_UNIX, SOCK_STREAM, 0);
    if (::setgid(65534) != 0 || ::setuid(65534) != 0) ::_exit(2);
    if (::connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0)
      ::_exit(3);
    char bytes[512];
    for (ssize_t got = 0; (got = ::read(fd, bytes, sizeof(bytes))) > 0;) {
      if (::write(ends[1], bytes, static_cast<std::size_t>(got)) != got) ::_exit(4);
    }
    ::_exit(0);
  }
  ::close(ends[1]);
  std::string heard;
  char bytes[512];
  for (ssize_t got = 0; (got = ::read(ends[0], bytes, sizeof(bytes))) > 0;)
    heard.append(bytes, static_cast<std::size_t>(got));
  ::close(ends[0]);
  int exit_status = -1;
  ASSERT_EQ(::waitpid(child, &exit_status, 0), child);
  EXPECT_EQ(WEXITSTATUS(exit_status), 0);
  EXPECT_EQ(heard.substr(0, 9), std::string("\0\0\0\4\0\0\0\0\0", 9));  // SETTINGS
  ASSERT_GT(heard.size(), 26u);
  EXPECT_EQ(heard[12], '\7');   // GOAWAY
  EXPECT_EQ(heard[25], '\14');  // INADEQUATE_SECURITY
  EXPECT_NE(heard.find("uid 65534 may not use admin.sock: ask to be added to group"),
            std::string::npos);
}

// Whoever reads a descriptor has to close it, which may last for as long as its sender likes:
// gRPC's threads are not to get any.
TEST_F(ControlTest, TakesNoDescriptorsWhereGrpcReadsAndTheKernelCanRefuseThem) {
  start();
  for (const char* name : {"client.sock", "admin.sock"}) {
    const UniqueFd connection(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::strncpy(address.sun_path, path(name).c_str(), sizeof(address.sun_path) - 1);
    ASSERT_EQ(::connect(connection.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address)),
              0);
    int passes = 1;
    socklen_t length = sizeof(passes);
    constexpr int kPassRights = 83;
    const bool known =
        ::getsockopt(connection.get(), SOL_SOCKET, kPassRights, &passes, &length) == 0;
    const bool sent = support::send_descriptor(connection.get(), connection.get());
    if (known) {
      EXPECT_FALSE(sent) << name;
      EXPECT_EQ(errno, EPERM) << name;
    }
    EXPECT_EQ(status().backend(), "fake") << "it serves all the same";
  }
}

}  // namespace
}  // namespace arcomm::test
