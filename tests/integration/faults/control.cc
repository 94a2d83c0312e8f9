// A control plane that strangers try to hold up, on a host that helps them. Fault matrix 43,
// 46, 48.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstring>
#include <filesystem>

#include "proto/fd_message.h"
#include "tests/integration/node_test.h"
#include "tests/support/sessions/descriptor_message.h"
#include "tests/support/sessions/lingering_socket.h"

namespace arcomm::support {
namespace {

const milliseconds kSoon{1000 * kSlowdown};  // another user attaches within

UniqueFd connect_to(const std::string& path, int type = SOCK_STREAM) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path, path.data(), std::min(path.size(), sizeof(address.sun_path) - 1));
  UniqueFd fd(::socket(AF_UNIX, type | SOCK_CLOEXEC, 0));
  if (fd && ::connect(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0)
    fd.reset();
  return fd;
}

// Memory that is there, page by page, until it is closed.
UniqueFd filled_memory(std::uint64_t bytes) {
  UniqueFd memory(::memfd_create("huge", MFD_CLOEXEC));
  EXPECT_EQ(::fallocate(memory.get(), 0, 0, static_cast<off_t>(bytes)), 0) << std::strerror(errno);
  return memory;
}

// From Linux 6.16 on: SO_PASSRIGHTS, newer than the headers.
bool can_turn_descriptors_away() {
  const UniqueFd any(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  int passes = 1;
  socklen_t length = sizeof(passes);
  return ::getsockopt(any.get(), SOL_SOCKET, 83, &passes, &length) == 0;
}

mode_t mode_of(const std::string& path) {
  struct stat info {};
  return ::stat(path.c_str(), &info) == 0 ? info.st_mode & 07777 : 0;
}

// A socket that listens there, in the place of what was there.
UniqueFd squat_on(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path, path.data(), std::min(path.size(), sizeof(address.sun_path) - 1));
  UniqueFd fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (fd && (::bind(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0 ||
             ::listen(fd.get(), 1) != 0))
    fd.reset();
  return fd;
}

class ControlHeldUp : public NodeTest {
 protected:
  static DaemonProcess::Options open_to_nobody() {
    DaemonProcess::Options options;
    options.settings["access.group"] = "nogroup";
    return options;
  }
  static void preload(DaemonProcess::Options& options) {
    options.environment.push_back(std::string("LD_PRELOAD=") + ARCOMM_OLDER_HOST_LIBRARY);
  }
  // What the kernel can do is hidden, where there is something to hide.
  static DaemonProcess::Options on_an_older_host() {
    DaemonProcess::Options options = open_to_nobody();
    if (can_turn_descriptors_away()) preload(options);
    return options;
  }
  // Another user comes, attaches, works and goes.
  void expect_served_soon() {
    const auto other = ::geteuid() == 0 ? client_of(kNobody) : ClientProcess::start(node());
    const Reply attached = other->ask("init 20000");
    EXPECT_TRUE(attached.ok()) << attached.to_string();
    EXPECT_LT(attached.took, kSoon);
    std::printf("attached in %ld ms\n", static_cast<long>(attached.took.count()));
    other->expect_ok("comm c0 1 " + other->expect_ok("id") + " 0");
    other->expect_ok("allreduce c0 1000 float32 sum mem=alloc");
    other->expect_ok("finalize");
  }
  std::size_t pings() {
    std::size_t count = 0;
    for (const std::string& message : node().notifications())
      count += message.find("WATCHDOG=1") != std::string::npos;
    return count;
  }
  std::size_t open_files_named(const std::string& name) {
    const std::string files = "/proc/" + std::to_string(node().pid()) + "/fd";
    std::size_t count = 0;
    for (const auto& file : std::filesystem::directory_iterator(files)) {
      std::error_code gone;
      const auto target = std::filesystem::read_symlink(file, gone).string();
      count += target.find(name) != std::string::npos;
    }
    return count;
  }
  pid_t thread_of(const std::string& name) {
    const std::string tasks = "/proc/" + std::to_string(node().pid()) + "/task";
    for (const auto& task : std::filesystem::directory_iterator(tasks)) {
      if (read_text(task.path().string() + "/comm") == name + "\n")
        return std::atoi(task.path().filename().c_str());
    }
    return 0;
  }
};

// Each would be closed by whoever reads it, and that close blocks for 20 s.
TEST_F(ControlHeldUp, LingeringSocketsThatAreSentToItHoldUpNobody) {  // 46
#ifdef ARCOMM_SANITIZED
  GTEST_SKIP() << "a preloaded library and a sanitizer do not go together";
#endif
  start(on_an_older_host());
  const std::string greeting("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\4\0\0\0\0\0", 33);
  const std::string ping("\0\0\10\6\0\0\0\0\0ARCOMMD!", 17);
  std::vector<LingeringSocket> stuck(12);
  std::vector<UniqueFd> connections;
  for (std::size_t i = 0; i < stuck.size(); ++i) {
    const bool to_admins = i % 4 == 3;
    connections.push_back(connect_to(to_admins ? node().admin_socket() : node().client_socket()));
    ASSERT_TRUE(connections.back());
    ASSERT_EQ(::send(connections.back().get(), greeting.data(), greeting.size(), MSG_NOSIGNAL),
              static_cast<ssize_t>(greeting.size()));
  }
  ::usleep(100'000);  // so that they are served
  node().freeze();    // so that the last close is the daemon's
  for (std::size_t i = 0; i < stuck.size(); ++i) {
    for (int more = 0; more < 2; ++more) {
      EXPECT_TRUE(
          send_with_descriptor(connections[i].get(), ping.data(), ping.size(), stuck[i].end.get()))
          << "the host is not as old as it should be";
    }
    stuck[i].end.reset();
  }
  node().thaw();
  ::usleep(100'000);
  expect_served_soon();
  EXPECT_EQ(arctl(node(), {"status"}).code, 0);
  expect_log("it sent descriptors where none are taken");
  expect_served_soon();
}

// The last close of such memory takes as long as the kernel needs to give its pages back.
TEST_F(ControlHeldUp, HugeMemoryThatIsSentToItHoldsUpNobody) {  // 46
#ifdef ARCOMM_SANITIZED
  GTEST_SKIP() << "a preloaded library and a sanitizer do not go together";
#endif
  constexpr std::uint64_t kPieces = 8;
  const std::uint64_t bytes = std::min<std::uint64_t>(
      static_cast<std::uint64_t>(::sysconf(_SC_AVPHYS_PAGES) * ::sysconf(_SC_PAGESIZE)) / 4,
      std::uint64_t{2} << 30);
  start(on_an_older_host());
  std::vector<UniqueFd> memory, connections;
  // All of it is filled before the first connects: a connection that says nothing is closed after
  // 5 s, and a slow machine fills for longer.
  for (std::uint64_t i = 0; i < kPieces; ++i) memory.push_back(filled_memory(bytes / kPieces));
  for (std::uint64_t i = 0; i < kPieces; ++i) {
    connections.push_back(i % 2 == 0 ? connect_to(node().client_socket())
                                     : connect_to(node().fd_socket(), SOCK_SEQPACKET));
  }
  ::usleep(100'000);  // so that they are served
  node().freeze();    // so that the last close is the daemon's
  for (std::uint64_t i = 0; i < kPieces; ++i) {
    EXPECT_TRUE(send_descriptor(connections[i].get(), memory[i].get()))
        << "the host is not as old as it should be";
    memory[i].reset();
  }
  node().thaw();
  expect_served_soon();
  EXPECT_TRUE(eventually(kPrompt, [&] { return open_files_named("memfd:huge") == 0; }))
      << "it is kept";
}

TEST_F(ControlHeldUp, ANameServiceThatHangsDuringAReloadHoldsUpNobody) {  // 46
#ifdef ARCOMM_SANITIZED
  GTEST_SKIP() << "a preloaded library and a sanitizer do not go together";
#endif
  const ScratchFolder scratch;
  const std::string hangs = scratch / "hangs";
  DaemonProcess::Options options;
  preload(options);
  options.config_text = "[access]\ngroup = \"nogroup\"\n";
  options.environment.push_back("ARCOMM_TEST_NAMES_HANG=" + hangs);
  start(options);
  expect_served_soon();
  write_text(hangs, "");
  write_text(node().config_path(), "[access]\ngroup = \"nogroup\"\nadmin_group = \"nogroup\"\n");
  node().signal(SIGHUP);
  EXPECT_TRUE(node().wait_for_notification("RELOADING=1"));
  expect_served_soon();
  EXPECT_EQ(mode_of(node().admin_socket()), 0600u);
  ASSERT_EQ(::unlink(hangs.c_str()), 0);
  EXPECT_TRUE(eventually(kPrompt, [&] { return mode_of(node().admin_socket()) == 0660; }))
      << "the group that was found is not used";
  expect_served_soon();
}

TEST_F(ControlHeldUp, TheWatchdogHearsOfALoopThatStandsStill) {  // 46
  DaemonProcess::Options options;
  options.environment = {"WATCHDOG_USEC=600000"};
  options.settings["watchdog.stall_ms"] = "500";
  start(options);
  EXPECT_TRUE(eventually(kPrompt, [&] { return pings() >= 3; }));
  const pid_t loop = thread_of("arc-control");
  ASSERT_GT(loop, 0);
  if (::ptrace(PTRACE_SEIZE, loop, nullptr, nullptr) != 0)
    GTEST_SKIP() << "may not stop a thread of another process";
  ASSERT_EQ(::ptrace(PTRACE_INTERRUPT, loop, nullptr, nullptr), 0);
  ASSERT_EQ(::waitpid(loop, nullptr, __WALL), loop);
  EXPECT_TRUE(node().wait_for_log("the control loop has stood still for more than 500 ms"));
  const std::size_t before = pings();
  ::usleep(1'500'000);
  EXPECT_EQ(pings(), before) << "the watchdog is pinged for a loop that stands still";
  ASSERT_EQ(::ptrace(PTRACE_DETACH, loop, nullptr, nullptr), 0);
  EXPECT_TRUE(eventually(kPrompt, [&] { return pings() >= before + 2; }));
  expect_log("the control loop moves again");
}

// As from a user namespace: the kernel shows the daemon as many uids as its owner likes.
TEST_F(ControlHeldUp, ManyUidsOfOnePersonLeaveRoomForSomebodyElse) {  // 43
  if (::geteuid() != 0) GTEST_SKIP() << "needs root to become other users";
  DaemonProcess::Options options;
  options.settings["access.group"] = "nogroup";
  options.limits = {{RLIMIT_NOFILE, 1024}};  // so that 128 connections are the most
  start(options);
  const std::size_t descriptors = node().child().open_descriptors();
  const std::string path = node().client_socket();
  int ends[2];
  ASSERT_EQ(::pipe2(ends, O_CLOEXEC), 0);
  const UniqueFd told(ends[0]);
  UniqueFd teller(ends[1]);
  const pid_t person = ::fork();
  ASSERT_GE(person, 0);
  if (person == 0) {
    const gid_t group = kNogroup;
    const std::string greeting("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\4\0\0\0\0\0", 33);
    if (::syscall(SYS_setgroups, 1, &group) != 0) ::_exit(1);
    for (uid_t uid = 200'000; uid < 200'400; ++uid) {
      if (::syscall(SYS_setresuid, -1, uid, 0) != 0) ::_exit(2);
      const int connection = connect_to(path).release();
      if (::syscall(SYS_setresuid, -1, 0, 0) != 0) ::_exit(3);
      if (connection >= 0)
        (void)!::send(connection, greeting.data(), greeting.size(), MSG_NOSIGNAL);
    }
    (void)!::write(teller.get(), "x", 1);
    for (;;) ::pause();
  }
  teller.reset();
  char byte = 0;
  ASSERT_EQ(::read(told.get(), &byte, 1), 1);
  expect_metric_at_least("arcomm_connections_refused_total", {}, 300);
  expect_log("of 128 connections, and this uid and its like have their share");
  expect_served_soon();
  EXPECT_EQ(arctl(node(), {"status"}).code, 0);
  EXPECT_LT(count_of(node().log(), "connection refused"), 100u) << "they flood the log";
  ::kill(person, SIGKILL);
  EXPECT_EQ(::waitpid(person, nullptr, 0), person);
  EXPECT_TRUE(eventually(kPrompt, [&] {
    return node().child().open_descriptors() <= descriptors + 2;
  })) << "its connections stay open";
}

TEST_F(ControlHeldUp, NobodyWaitsForItsLockWhateverTheUmaskItIsStartedWith) {  // 48
  if (::geteuid() != 0) GTEST_SKIP() << "needs root to become another user";
  const ScratchFolder scratch;
  DaemonProcess::Options options;
  options.folder = scratch.path();
  options.settings["access.group"] = "nogroup";
  const mode_t umask_before = ::umask(0);
  start(options);
  ::umask(umask_before);
  const std::string lock = node().runtime_dir() + "/arcommd.lock";
  EXPECT_EQ(mode_of(lock), 0600u);
  EXPECT_EQ(mode_of(node().runtime_dir()) & 022, 0u);
  EXPECT_EQ(mode_of(node().state_dir()) & 022, 0u);
  EXPECT_EQ(mode_of(node().client_socket()), 0660u);
  EXPECT_EQ(mode_of(node().fd_socket()), 0660u);
  const pid_t squatter = ::fork();
  ASSERT_GE(squatter, 0);
  if (squatter == 0) {
    if (::setgid(kNogroup) != 0 || ::setuid(kNobody) != 0) ::_exit(1);
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);  // behind setuid(), which clears it
    for (;;) {
      const int file = ::open(lock.c_str(), O_RDONLY);
      if (file >= 0) (void)::flock(file, LOCK_EX);  // and keep it
      (void)::symlink("/dev/null", (lock + ".x").c_str());
      ::usleep(100);
    }
  }
  for (int i = 0; i < 3; ++i) {
    node().kill();
    node_.reset();
    start(options);
  }
  expect_served_soon();
  ::kill(squatter, SIGKILL);
  EXPECT_EQ(::waitpid(squatter, nullptr, 0), squatter);
  node_.reset();  // its folders go with `scratch`
  start();
}

// Whoever sits where the sockets were: a stranger cannot, and of the daemon's own user it is no
// obstacle.
TEST_F(ControlHeldUp, WhoeverSquatsOnItsSocketsWhileItDiesDoesNotKeepTheNextOneOut) {  // 48
  const ScratchFolder scratch;
  DaemonProcess::Options options = open_to_nobody();
  options.folder = scratch.path();
  start(options);
  const std::string path = node().client_socket();
  // Another user's alone: one of the daemon's own user that does nothing else may come between any
  // two of its steps.
  const pid_t squatter = ::geteuid() == 0 ? ::fork() : 0;
  ASSERT_GE(squatter, 0);
  if (::geteuid() == 0 && squatter == 0) {
    if (::setgid(kNogroup) != 0 || ::setuid(kNobody) != 0) ::_exit(1);
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);  // behind setuid(), which clears it
    for (;;) {
      const UniqueFd squats = squat_on(path);
      (void)::symlink("/dev/null", (path + ".new").c_str());
      ::usleep(100);
    }
  }
  for (int i = 0; squatter != 0 && i < 3; ++i) {
    node().kill();
    ::usleep(50'000);
    node_.reset();
    start(options);
    expect_served_soon();
  }
  if (squatter != 0) {
    ::kill(squatter, SIGKILL);
    EXPECT_EQ(::waitpid(squatter, nullptr, 0), squatter);
  }
  node().kill();
  node_.reset();
  ASSERT_EQ(::unlink(path.c_str()), 0);
  const UniqueFd own = squat_on(path);  // of the daemon's user: its sockets are its to replace
  ASSERT_TRUE(own);
  start(options);
  expect_served_soon();
  node_.reset();
  start();
}

TEST_F(ControlHeldUp, AFolderThatAnotherUserHasTakenIsRefusedByName) {  // 48
  if (::geteuid() != 0) GTEST_SKIP() << "needs root to give a folder away";
  const ScratchFolder scratch;
  DaemonProcess::Options options = open_to_nobody();
  options.folder = scratch.path();
  start(options);
  const std::string folder = node().runtime_dir(), path = node().client_socket();
  const auto expect_refused = [&](const std::string& why) {
    options.expect_ready = false;
    node_ = DaemonProcess::start(options);
    const std::optional<Exit> ended = node().wait_exit(milliseconds(20'000));
    ASSERT_TRUE(ended) << "it runs";
    EXPECT_NE(ended->code, 0);
    EXPECT_NE(node().log().find(why), std::string::npos) << node().log();
    node_.reset();
  };
  node().kill();
  node_.reset();
  ASSERT_EQ(::chown(folder.c_str(), kNobody, kNogroup), 0);
  expect_refused(folder + " belongs to uid 65534");
  ASSERT_EQ(::chown(folder.c_str(), 0, 0), 0);
  ASSERT_EQ(::chmod(folder.c_str(), 01777), 0);
  expect_refused("others may write to " + folder);
  ASSERT_EQ(::chmod(folder.c_str(), 0755), 0);
  (void)::unlink(path.c_str());
  ASSERT_EQ(::mkdir(path.c_str(), 0755), 0);
  expect_refused("cannot put in place " + path);
  ASSERT_EQ(::rmdir(path.c_str()), 0);
  start();
}

}  // namespace
}  // namespace arcomm::support
