// One person with a real user namespace, 65,536 uids that are all its own, takes everything that
// the node has for all users. Fault matrix 43. The range is Debian's first of /etc/subuid, which
// lies in two of the daemon's ranges (daemon/telemetry/uid_range.h); with its own account it is
// three users to the daemon. Skipped, and the reason said, where the kernel gives nobody a user
// namespace.
#include "tests/support/processes/user_namespace.h"

#include <grp.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sched.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstring>
#include <optional>
#include <string>
#include <vector>

#include "tests/integration/node_test.h"

namespace arcomm::support {
namespace {

constexpr const char* kGroupName = "users";  // whose members may use the daemon
constexpr gid_t kGroup = 100;
constexpr uid_t kPerson = 12'345;
constexpr uid_t kNewcomer = 23'456;
constexpr uid_t kFirst = 100'000;
constexpr std::uint32_t kUids = 65'536;
constexpr uid_t kUpper = 131'072 - kFirst;  // inside: where the daemon's second range begins
constexpr std::uint64_t kMiB = 1 << 20;
// What malloc keeps of thousands of connections for the next ones: as much after ten rounds as
// after one.
constexpr std::uint64_t kKept = 64 * kMiB;
constexpr milliseconds kServed{5000};

// Tries to have a connection for each uid of the namespace, again and again. What it got it keeps
// alive, so that only the daemon's limits end it.
class ConnectionStorm {
 public:
  ConnectionStorm(const UserNamespace& space, const std::string& path) {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::memcpy(address.sun_path, path.data(), std::min(path.size(), sizeof(address.sun_path) - 1));
    int ends[2] = {-1, -1};
    EXPECT_EQ(::pipe2(ends, O_CLOEXEC), 0);
    told_.reset(ends[0]);
    const UniqueFd teller(ends[1]);
    child_ = ::fork();
    if (child_ == 0) blow(space, address, teller.get());
  }
  ~ConnectionStorm() { stop(); }
  // Once every uid has tried once more; false: it could not begin.
  bool wait_for_a_round() {
    int held = -1;
    return ::read(told_.get(), &held, sizeof(held)) == sizeof(held);
  }
  void stop() {
    if (child_ <= 0) return;
    ::kill(child_, SIGKILL);
    ::waitpid(child_, nullptr, 0);
    child_ = -1;
  }

 private:
  // After fork: system calls alone.
  [[noreturn]] static void blow(const UserNamespace& space, const sockaddr_un& address, int told) {
    static constexpr int kMost = 4096;
    static int held[kMost];
    static constexpr char kGreeting[] = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\4\0\0\0\0";
    int count = 0, rounds = 0;
    if (::syscall(SYS_setgroups, 1, &kGroup) != 0 || ::setns(space.fd(), CLONE_NEWUSER) != 0 ||
        ::syscall(SYS_setresgid, 0, 0, 0) != 0 || ::syscall(SYS_setresuid, 0, 0, 0) != 0)
      ::_exit(1);
    for (uid_t uid = 0;; uid = (uid + 1) % space.options().count) {
      if (uid == 0 || count == kMost) {
        int alive = 0;
        for (int i = 0; i < count; ++i) {
          pollfd one{held[i], POLLIN, 0};
          const bool is_over = ::poll(&one, 1, 0) > 0 && (one.revents & POLLHUP) != 0;
          if (is_over) ::close(held[i]);
          if (!is_over) held[alive++] = held[i];
        }
        count = alive;
        if (uid == 0 && rounds++ > 0 && ::write(told, &count, sizeof(count)) < 0) ::_exit(0);
      }
      if (count == kMost) continue;
      if (::syscall(SYS_setresuid, -1, uid, -1) != 0) ::_exit(2);
      const int fd = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
      const bool is_there =
          ::connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0;
      if (::syscall(SYS_setresuid, -1, 0, -1) != 0) ::_exit(3);
      if (is_there) (void)!::send(fd, kGreeting, sizeof(kGreeting), MSG_NOSIGNAL);
      if (is_there) held[count++] = fd;
      if (!is_there) ::close(fd);
    }
  }

  UniqueFd told_;
  pid_t child_ = -1;
};

class ManyUids : public NodeTest {
 protected:
  // False: skipped.
  bool make_namespace() {
    if (::geteuid() != 0) {
      skipped_ = "needs root to become other users";
      return false;
    }
    Result<UserNamespace> made =
        UserNamespace::make({.person = kPerson, .group = kGroup, .first = kFirst, .count = kUids});
    if (!made) {
      skipped_ = made.error().message;
      return false;
    }
    space_.emplace(std::move(made).value());
    return true;
  }
  std::unique_ptr<ClientProcess> mapped(uid_t inside) {
    ClientProcess::Options options;
    options.environment = node().environment();
    options.user_namespace_fd = space_->fd();
    options.uid = options.gid = inside;
    options.groups = {kGroup};
    return ClientProcess::start(options);
  }
  std::unique_ptr<ClientProcess> account(uid_t uid) {
    ClientProcess::Options options;
    options.environment = node().environment();
    options.uid = uid;
    options.gid = kGroup;
    options.groups = {kGroup};
    return ClientProcess::start(options);
  }

  // Sessions of as many uids as the daemon takes, from `first` inside of the namespace; the refusal
  // of the next one is the last of `refusals_`.
  Clients attach_all(uid_t first, std::size_t most) {
    Clients attached;
    for (uid_t uid = first; attached.size() < most; uid += 97) {
      auto client = mapped(uid);
      const Reply reply = client->ask("init 20000");
      if (!reply.ok()) {
        refused_ = reply;
        refused_pid_ = client->pid();
        return attached;
      }
      attached.push_back(std::move(client));
    }
    ADD_FAILURE() << "nobody refused the " << most << "th session";
    return attached;
  }
  // It takes all that it gets, and is then told whose share of what is used up.
  int expect_hoards(ClientProcess& client, const std::string& what, arcReason_t reason,
                    const std::string& setting) {
    const Reply reply = client.ask("hoard " + what, milliseconds(120'000));
    expect_told(reply, reason, setting);
    return std::atoi(reply.value.c_str());
  }
  static void expect_told(const Reply& refused, arcReason_t reason, const std::string& setting) {
    EXPECT_EQ(refused.code, arcResourceExhausted) << refused.to_string();
    EXPECT_EQ(refused.reason, reason) << refused.to_string();
    EXPECT_NE(refused.message.find(setting), std::string::npos) << refused.message;
    EXPECT_NE(refused.message.find("and its range have"), std::string::npos) << refused.message;
  }
  // Somebody else, with two processes: attaches, forms a communicator and gets the right sums.
  void expect_newcomer_is_served(const std::string& beside) {
    const auto began = std::chrono::steady_clock::now();
    Clients ranks;
    ranks.push_back(account(kNewcomer));
    ranks.push_back(account(kNewcomer));
    expect_all_ok(ranks, "init 5000");
    form_communicator(ranks, "c0");
    expect_all_ok(ranks, "allreduce c0 50000 float32 sum");
    expect_all_ok(ranks, "allreduce c0 50000 float32 sum mem=alloc");
    const auto took =
        std::chrono::duration_cast<milliseconds>(std::chrono::steady_clock::now() - began);
    EXPECT_LT(took, kServed) << "beside " << beside;
    std::cout << "another user, beside " << beside << ": " << took.count() << " ms\n";
    expect_all_ok(ranks, "finalize");
  }
  // Within what all users may have, whoever asks for more.
  void expect_within_limits() {
    const nlohmann::json status = arctl_json(node(), {"status"});
    for (const nlohmann::json& limit : status["limits"]) {
      std::cout << "  " << limit["name"] << ": " << limit["used"] << " of " << limit["of_node"]
                << ", users " << limit["users"] << "\n";
      if (limit["of_node"].is_null()) continue;
      EXPECT_LE(limit["used"], limit["of_node"]) << limit;
    }
  }
  struct Footprint {
    std::size_t descriptors = 0, mappings = 0, threads = 0;
    std::uint64_t resident_bytes = 0;
  };
  Footprint footprint() {
    const std::string maps = read_text("/proc/" + std::to_string(node().pid()) + "/maps");
    return {.descriptors = node().child().open_descriptors(),
            .mappings = count_of(maps, "\n"),
            .threads = node().child().threads(),
            .resident_bytes = node().child().resident_bytes()};
  }
  void expect_back_to(const Footprint& before) {
    for (const char* resource : {"sessions", "communicators", "mappings", "host_bytes", "plans"}) {
      EXPECT_TRUE(eventually(kPrompt, [&] { return used(resource) == 0; }))
          << used(resource) << " of " << resource << " are still in use";
    }
    Footprint now;
    EXPECT_TRUE(eventually(kPrompt,
                           [&] {
                             now = footprint();
                             return now.descriptors <= before.descriptors + 2 &&
                                    now.mappings <= before.mappings + 64 &&
                                    now.resident_bytes <=
                                        before.resident_bytes + kKept + kQuarantineBytes;
                           }))
        << now.descriptors << " descriptors instead of " << before.descriptors << ", "
        << now.mappings << " mappings instead of " << before.mappings << ", " << now.resident_bytes
        << " resident bytes instead of " << before.resident_bytes;
    EXPECT_LE(now.threads, before.threads + 2) << "gRPC adds a thread or two of its own, once";
    std::cout << "afterwards: " << now.descriptors << " descriptors (before " << before.descriptors
              << "), " << now.mappings << " mappings (" << before.mappings << "), "
              << now.resident_bytes / kMiB << " MiB resident (" << before.resident_bytes / kMiB
              << ")\n";
  }

  std::optional<UserNamespace> space_;
  std::string skipped_;
  Reply refused_;
  pid_t refused_pid_ = 0;
};

TEST_F(ManyUids, OfAUserNamespaceAtTheNodesLimitsLeaveRoomForAnotherUser) {  // 43
  if (!make_namespace()) GTEST_SKIP() << skipped_;
  DaemonProcess::Options options;
  options.settings = {{"access.group", kGroupName},        {"quota.sessions", "8"},
                      {"quota.node_sessions", "48"},       {"quota.node_mappings", "800"},
                      {"quota.node_communicators", "400"}, {"quota.node_host_bytes", "512MiB"}};
  options.limits = {{RLIMIT_NOFILE, 4096}};  // 512 connections
  start(options);
  expect_newcomer_is_served("nobody");
  const Footprint before = footprint();
  Clients early;  // whose communicator breaks before the person's, and is built again afterwards
  early.push_back(account(kNewcomer));
  early.push_back(account(kNewcomer));
  expect_all_ok(early, "init 2000");
  form_communicator(early, "c0");

  ConnectionStorm storm(*space_, node().client_socket());
  ASSERT_TRUE(storm.wait_for_a_round()) << "nobody could enter the namespace";
  const auto connected = limit_of("connections")["used"].get<int>();
  EXPECT_GE(connected, 256);
  EXPECT_LE(connected, 512 - 64);
  expect_log("of 512 connections, and this uid and its like have their share");
  expect_newcomer_is_served("65,536 uids that connect in a loop");
  storm.stop();

  const Clients lower = attach_all(0, 48);
  EXPECT_EQ(lower.size(), 23u) << "half of what the newcomers left";
  expect_told(refused_, arcReasonQuota, "quota.node_sessions");
  expect_refusal_told("Attach", refused_pid_, "ResourceExhausted");
  const Clients upper = attach_all(kUpper, 48);
  EXPECT_EQ(upper.size(), 12u);
  expect_told(refused_, arcReasonQuota, "quota.node_sessions");
  const auto person = account(kPerson);
  person->expect_ok("init 20000");
  const nlohmann::json sessions = arctl_json(node(), {"sessions"});
  EXPECT_TRUE(std::ranges::any_of(sessions["sessions"],
                                  [&](const nlohmann::json& one) {
                                    return one["pid"] == lower[1]->pid() &&
                                           one["uid"] == kFirst + 97;
                                  }))
      << "the daemon does not see the uid that the namespace maps: " << sessions;
  expect_newcomer_is_served("its sessions");

  const auto ids = [&] { return limit_of("remembered_ids")["used"].get<int>(); };
  const int known = ids();
  EXPECT_EQ(early[0]->ask("allreduce c0 1000 float32 sum").code, arcDeadlineExceeded);
  for (std::size_t i = 2; i < 8; ++i) {
    lower[i]->expect_ok("cycles comm 150", milliseconds(60'000));
    upper[i]->expect_ok("cycles comm 150", milliseconds(60'000));
  }
  EXPECT_GE(ids(), 256);
  EXPECT_LE(ids(), known + 2 * 256 + 4) << "256 of each of its ranges";
  expect_all_ok(early, "rebuild c0");
  EXPECT_EQ(early[0]->expect_ok("epoch c0"), "2") << "its ids pushed out another user's";
  expect_newcomer_is_served("its ids");

  // One user after the other, for what the next one takes makes everybody's share smaller. Memory
  // in pieces of which the last that is refused would have paid for all the mappings.
  for (ClientProcess* one : {lower[0].get(), upper[0].get(), person.get()}) {
    expect_hoards(*one, "alloc 1000 16777216", arcReasonOutOfMemory, "quota.node_host_bytes");
    expect_hoards(*one, "alloc 2000 4096", arcReasonQuota, "quota.node_mappings");
    expect_newcomer_is_served("its memory and its mappings");
  }
  for (ClientProcess* one : {lower[2].get(), upper[2].get(), person.get()})
    expect_hoards(*one, "comm 1000", arcReasonQuota, "quota.node_communicators");
  expect_newcomer_is_served("its communicators");

  expect_within_limits();
  expect_all_ok(early, "allreduce c0 1000 float32 sum");
  expect_all_ok(early, "finalize");
  for (const Clients* all : {&lower, &upper}) {
    for (const auto& client : *all) client->child().kill();
  }
  person->child().kill();
  early.clear();
  expect_back_to(before);
  expect_newcomer_is_served("nobody any more");
}

// Of mappings, which cost more time: Exhaustion.TheSameMemoryIsAMapping...
TEST_F(ManyUids, OfAUserNamespaceTakeTheirShareOfTheMachinesOwnConnectionsAndNoMore) {  // 43
  if (!make_namespace()) GTEST_SKIP() << skipped_;
  DaemonProcess::Options options;
  options.settings["access.group"] = kGroupName;
  start(options);
  expect_newcomer_is_served("nobody");
  const Footprint before = footprint();
  for (int round = 0; round < 2; ++round) {
    ConnectionStorm storm(*space_, node().client_socket());
    ASSERT_TRUE(storm.wait_for_a_round()) << "nobody could enter the namespace";
    expect_within_limits();
    expect_newcomer_is_served("65,536 uids that connect in a loop");
  }
  expect_back_to(before);
  expect_newcomer_is_served("nobody any more");
}

}  // namespace
}  // namespace arcomm::support
