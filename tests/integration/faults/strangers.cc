// Users who may not, and bytes that are no message. Fault matrix 15, 16 and 40.
#include <fcntl.h>
#include <grp.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstring>
#include <functional>
#include <random>

#include "proto/fd_message.h"
#include "tests/integration/node_test.h"
#include "tests/support/sessions/descriptor_message.h"
#include "tests/support/sessions/lingering_socket.h"

namespace arcomm::support {
namespace {

class Strangers : public NodeTest {};

UniqueFd connect_socket(const std::string& path, int type) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path, path.data(), std::min(path.size(), sizeof(address.sun_path) - 1));
  UniqueFd fd(::socket(AF_UNIX, type | SOCK_CLOEXEC, 0));
  if (fd && ::connect(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0)
    fd.reset();
  return fd;
}

// Whether the other side closes within the time.
bool is_closed(int fd, milliseconds deadline) {
  return eventually(deadline, [fd] {
    char byte[4096];
    for (;;) {
      const ssize_t got = ::recv(fd, byte, sizeof(byte), MSG_DONTWAIT);
      if (got == 0 || (got < 0 && errno != EAGAIN)) return true;
      if (got < 0) return false;
    }
  });
}

// To a daemon that is frozen: a descriptor whose close does not return while `stuck` lives. Then
// others behind it for as long as they are answered: how many were.
int leave_descriptors(int socket_fd, LingeringSocket& stuck, const std::function<void()>& sent) {
  const UniqueFd file(::open("/dev/null", O_RDWR | O_CLOEXEC));
  bool open = send_descriptor(socket_fd, stuck.end.get());
  stuck.end.reset();
  sent();
  FdMessage answer;
  for (int i = 0; i < 1000; ++i) {
    if (!open || ::recv(socket_fd, &answer, sizeof(answer), 0) <= 0) return i;
    open = send_descriptor(socket_fd, file.get());
  }
  return -1;
}

DaemonProcess::Options closed_to_others() {
  DaemonProcess::Options options;
  options.settings["access.group"] = "";
  options.settings["access.admin_group"] = "";
  return options;
}

TEST_F(Strangers, AUserOutsideTheGroupIsTurnedAwayByTheSocketItself) {  // 15
  if (::geteuid() != 0) GTEST_SKIP() << "needs root to become another user";
  start(closed_to_others());
  const auto stranger = client_of(kNobody);
  const Reply refused = stranger->ask("init 5000");
  EXPECT_EQ(refused.code, arcPermissionDenied) << refused.to_string();
  EXPECT_EQ(refused.reason, arcReasonPermission) << refused.to_string();
  EXPECT_LT(refused.took, kPrompt);
  // The kernel refused it: the daemon has nothing to count or to tell.
  EXPECT_EQ(scrape().value("arcomm_connections_refused_total"), 0);
}

TEST_F(Strangers, AUserWhoReachesTheSocketAnywayIsRefusedAndAudited) {  // 15
  if (::geteuid() != 0) GTEST_SKIP() << "needs root to become another user";
  start(closed_to_others());
  // As if the folder's permissions had been opened by mistake.
  for (const std::string& path :
       {node().client_socket(), node().fd_socket(), node().admin_socket()}) {
    ASSERT_EQ(::chmod(path.c_str(), 0777), 0);
  }
  const auto stranger = client_of(kNobody);
  const std::size_t descriptors = node().child().open_descriptors();
  for (int attempt = 0; attempt < 20; ++attempt) {
    const Reply refused = stranger->ask("init 3000");
    EXPECT_TRUE(refused.heard && refused.code != arcSuccess) << refused.to_string();
    EXPECT_TRUE(refused.code == arcPermissionDenied || refused.code == arcUnavailable)
        << refused.to_string();
    EXPECT_LT(refused.took, kPrompt);
  }
  EXPECT_TRUE(eventually(kPrompt, [&] {
    return node().child().open_descriptors() <= descriptors + 2;
  })) << "refused connections stay open";
  expect_metric_at_least("arcomm_connections_refused_total", {}, 20);
  expect_log("connection refused");
  const std::string log = node().log();
  EXPECT_NE(log.find("65534"), std::string::npos) << "the uid is not in the audit line";
  EXPECT_NE(log.find(std::to_string(stranger->pid())), std::string::npos)
      << "the pid is not in the audit line";
  EXPECT_EQ(level_of_line(log, "connection refused"), "audit");
  EXPECT_EQ(scrape().value("arcomm_sessions"), 0);
  const Ran run = run_to_end({arctl_binary(), "status"}, node().environment(), milliseconds(20000),
                             kNobody, kNogroup);
  ASSERT_TRUE(run.exit.has_value());
  EXPECT_EQ(run.exit->code, 4) << run.errors;
}

TEST_F(Strangers, AMemberOfTheGroupIsServedWithoutBeingAdmin) {  // 15, 16
  if (::geteuid() != 0) GTEST_SKIP() << "needs root to become another user";
  DaemonProcess::Options daemon = closed_to_others();
  daemon.settings["access.group"] = "nogroup";
  start(daemon);
  const auto member = client_of(kNobody);
  member->expect_ok("init");
  const nlohmann::json sessions = arctl_json(node(), {"sessions"});
  ASSERT_EQ(sessions["sessions"].size(), 1u);
  EXPECT_EQ(sessions["sessions"][0].value("uid", 0), 65534);
  EXPECT_EQ(sessions["sessions"][0].value("pid", 0), member->pid());
  const Ran run = run_to_end({arctl_binary(), "status"}, node().environment(), milliseconds(20000),
                             kNobody, kNogroup);
  ASSERT_TRUE(run.exit.has_value());
  EXPECT_EQ(run.exit->code, 4) << run.output << run.errors;
}

TEST_F(Strangers, AMemberWhoseDescriptorsCannotBeClosedShutsNobodyElseOut) {  // 40
  if (::geteuid() != 0) GTEST_SKIP() << "needs root to become another user";
  DaemonProcess::Options daemon = closed_to_others();
  daemon.settings["access.group"] = "nogroup";
  start(daemon);
  const auto there_before = start_ranks(node(), 2);
  const std::string path = node().fd_socket();
  int ends[2];
  ASSERT_EQ(::pipe2(ends, O_CLOEXEC), 0);
  UniqueFd told(ends[0]);
  UniqueFd teller(ends[1]);
  node().freeze();
  const pid_t member = ::fork();
  ASSERT_GE(member, 0);
  if (member == 0) {
    if (::setgroups(0, nullptr) != 0 || ::setgid(kNogroup) != 0 || ::setuid(kNobody) != 0)
      ::_exit(1);
    const UniqueFd socket = connect_socket(path, SOCK_SEQPACKET);
    LingeringSocket stuck;
    const auto tell = [&](int number) { (void)!::write(teller.get(), &number, sizeof(number)); };
    tell(leave_descriptors(socket.get(), stuck, [&] { tell(0); }));
    for (;;) ::pause();
  }
  teller.reset();
  int answered = -1;
  EXPECT_EQ(::read(told.get(), &answered, sizeof(answered)), sizeof(answered));
  node().thaw();
  EXPECT_EQ(::read(told.get(), &answered, sizeof(answered)), sizeof(answered));
  EXPECT_GT(answered, 0) << "what it may leave is bounded";
  expect_clean_all_reduce(node());
  expect_all_ok(there_before, "allreduce c0 1024 float32 sum");
  ::kill(member, SIGKILL);
  int ended = 0;
  EXPECT_EQ(::waitpid(member, &ended, 0), member);
}

// As the root of a container that has no user namespace.
TEST_F(Strangers, RootThatIsNotTrustedIsServedAsAMemberAndIsNoOperator) {  // 16
  if (::geteuid() != 0) GTEST_SKIP() << "needs root";
  DaemonProcess::Options options;
  options.settings["access.trust_root"] = "false";
  options.settings["access.group"] = "root";
  options.settings["access.admin_group"] = "nogroup";
  start(options);
  expect_clean_all_reduce(node());
  const ArctlRun refused = arctl(node(), {"status"});
  EXPECT_EQ(refused.code, 4) << refused.errors;
  EXPECT_NE(refused.errors.find("access.trust_root is false"), std::string::npos) << refused.errors;
  expect_log("connection refused");
  expect_metric_at_least("arcomm_connections_refused_total", {}, 1);
}

TEST_F(Strangers, AdminCallsOnTheClientSocketAreDenied) {  // 16
  start();
  const Error denied = admin_status_over(node().client_socket());
  EXPECT_EQ(denied.code, ErrorCode::PermissionDenied) << denied.to_string();
  expect_refusal_told("GetStatus", ::getpid(), "PermissionDenied");
  const Error allowed = admin_status_over(node().admin_socket());
  EXPECT_EQ(allowed.code, ErrorCode::Ok) << allowed.to_string();
}

TEST_F(Strangers, RandomBytesOnEverySocketCloseTheConnectionAndNothingElse) {  // 40
  start();
  std::mt19937_64 random(3);
  const std::uint64_t before = node().child().resident_bytes();
  for (int round = 0; round < 300; ++round) {
    for (const std::string& path :
         {node().client_socket(), node().admin_socket(), node().fd_socket()}) {
      const bool packets = path == node().fd_socket();
      const UniqueFd fd = connect_socket(path, packets ? SOCK_SEQPACKET : SOCK_STREAM);
      ASSERT_TRUE(static_cast<bool>(fd)) << path << " does not accept any more in round " << round;
      std::string bytes(1 + random() % (packets ? 200 : 20000), '\0');
      for (char& byte : bytes) byte = static_cast<char>(random());
      // Half of the streams start as a correct HTTP/2 connection.
      if (!packets && round % 2 == 0) bytes.insert(0, "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n");
      [[maybe_unused]] const ssize_t sent =
          ::send(fd.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
      if (packets && bytes.size() != 56) {
        EXPECT_TRUE(is_closed(fd.get(), kPrompt)) << "a descriptor message of " << bytes.size();
      }
    }
  }
  ASSERT_TRUE(node().running());
  EXPECT_EQ(scrape().value("arcomm_sessions_opened_total"), 0) << "rubbish became a session";
  expect_clean_all_reduce(node());
  EXPECT_LT(node().child().resident_bytes(), before + (64u << 20) + kQuarantineBytes)
      << "memory grew with malformed bytes";
}

TEST_F(Strangers, RefusedHellosInALoopFillNoLogAndHideNobodyElses) {  // 15
  start();
  FdMessage hello;
  hello.kind = FdMessageKind::Hello;
  hello.session = 12345;
  const UniqueFd fd = connect_socket(node().fd_socket(), SOCK_SEQPACKET);
  const auto began = std::chrono::steady_clock::now();
  const std::size_t before = node().log().size();
  constexpr int kHellos = 20'000;
  for (int i = 0; i < kHellos; ++i) {
    ASSERT_EQ(::send(fd.get(), &hello, sizeof(hello), MSG_NOSIGNAL), sizeof(hello));
    FdMessage answer;
    ASSERT_EQ(::recv(fd.get(), &answer, sizeof(answer), 0), sizeof(answer));
    ASSERT_NE(answer.code, 0u);
  }
  const auto seconds =
      std::chrono::duration_cast<std::chrono::seconds>(std::chrono::steady_clock::now() - began);
  expect_log("Hello of pid");
  EXPECT_LT(node().log().size(), before + 8192 * static_cast<std::size_t>(seconds.count() + 2));
  expect_log("more failed calls of uid");
  expect_metric_at_least("arcomm_log_lines_left_out_total", {}, kHellos / 2);
}

TEST_F(Strangers, AnOversizedMessageIsRefusedInBoundedMemory) {  // 40
  start();
  expect_clean_all_reduce(node());
  const std::uint64_t before = node().child().resident_bytes();
  for (int round = 0; round < 5; ++round) {
    const Error refused = oversized_attach(node(), 64u << 20);
    EXPECT_EQ(refused.code, ErrorCode::ResourceExhausted) << refused.to_string();
  }
  ASSERT_TRUE(node().running());
  EXPECT_LT(node().child().resident_bytes(), before + (64u << 20) + kQuarantineBytes);
}

TEST_F(Strangers, ConnectionsThatSayNothingAreBoundedAndDropped) {  // 40
  start();
  std::vector<UniqueFd> silent;
  for (int i = 0; i < 200; ++i) {
    silent.push_back(connect_socket(node().fd_socket(), SOCK_SEQPACKET));
    silent.push_back(connect_socket(node().client_socket(), SOCK_STREAM));
  }
  expect_clean_all_reduce(node());
  // The descriptor socket waits five seconds for a Hello.
  EXPECT_TRUE(is_closed(silent.front().get(), milliseconds(8000) + kSlack));
  // The others wait as long for the first frame.
  EXPECT_TRUE(is_closed(silent.back().get(), milliseconds(8000) + kSlack));
  silent.clear();
}

}  // namespace
}  // namespace arcomm::support
