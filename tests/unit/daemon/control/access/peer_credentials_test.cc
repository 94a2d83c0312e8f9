#include "daemon/control/access/peer_credentials.h"

#include <grp.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <numeric>
#include <string>
#include <vector>

#include "proto/unique_fd.h"

namespace arcomm::test {
namespace {

// No account has these: what a name service could tell of them is nothing.
constexpr uid_t kUid = 54'321;
constexpr gid_t kGid = 54'322, kGroup = 54'323;

// A connection from a process with these groups, as accepted. The process ends at once: what the
// kernel knows is of the moment of the connect.
UniqueFd connection_of(const std::vector<gid_t>& groups) {
  const UniqueFd listener(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
  sockaddr_un address{};
  address.sun_family = AF_UNIX;  // an abstract name, which needs no permission of a folder
  const std::string name = "arcomm-peer-" + std::to_string(::getpid());
  std::memcpy(address.sun_path + 1, name.data(), name.size());
  EXPECT_EQ(::bind(listener.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
  EXPECT_EQ(::listen(listener.get(), 1), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    if (::setgroups(groups.size(), groups.data()) != 0 || ::setgid(kGid) != 0 ||
        ::setuid(kUid) != 0) {
      ::_exit(1);
    }
    const int fd = ::socket(AF_UNIX, SOCK_SEQPACKET, 0);
    ::_exit(::connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof(address)) == 0 ? 0 : 2);
  }
  int ended = -1;
  EXPECT_EQ(::waitpid(child, &ended, 0), child);
  EXPECT_EQ(ended, 0);
  return UniqueFd(::accept(listener.get(), nullptr, nullptr));
}

bool admits(const UniqueFd& connection, std::optional<gid_t> group) {
  const Result<PeerCredentials> peer = read_peer_credentials(connection.get());
  EXPECT_TRUE(peer);
  EXPECT_EQ(peer->uid, kUid);
  return may_connect(connection.get(), *peer, group, {});
}

TEST(PeerCredentials, AProcessIsInTheGroupsThatTheKernelGaveItThoughItsUidHasNoAccount) {
  if (::geteuid() != 0) GTEST_SKIP() << "needs root to become another user";
  const UniqueFd member = connection_of({1, kGroup, 7});
  EXPECT_TRUE(admits(member, kGroup));
  EXPECT_TRUE(admits(member, kGid)) << "its own group";
  EXPECT_FALSE(admits(member, kGroup + 1));
  EXPECT_FALSE(admits(member, std::nullopt));
  EXPECT_FALSE(admits(connection_of({}), kGroup));
}

TEST(PeerCredentials, FindsTheGroupAmongMoreThanItMadeRoomFor) {
  if (::geteuid() != 0) GTEST_SKIP() << "needs root to become another user";
  std::vector<gid_t> many(1000);
  std::iota(many.begin(), many.end(), gid_t{100'000});
  many.push_back(kGroup);
  EXPECT_TRUE(admits(connection_of(many), kGroup));
  EXPECT_TRUE(admits(connection_of(many), many[1]));
}

TEST(PeerCredentials, RootAndTheDaemonsOwnUidNeedNoGroup) {
  int ends[2];
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
  const UniqueFd here(ends[0]), there(ends[1]);
  const Result<PeerCredentials> peer = read_peer_credentials(here.get());
  ASSERT_TRUE(peer);
  EXPECT_EQ(peer->pid, ::getpid());
  EXPECT_TRUE(may_connect(here.get(), *peer, std::nullopt, {}));
  EXPECT_TRUE(may_connect(here.get(), {.pid = 1, .uid = 0, .gid = 0}, std::nullopt, {}));
}

TEST(PeerCredentials, RootThatIsNotTrustedNeedsTheGroupLikeAnybody) {
  int ends[2];
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
  const UniqueFd here(ends[0]), there(ends[1]);
  const Settings::Access careful{.trust_root = false};
  const PeerCredentials root{.pid = 1, .uid = 0, .gid = 0};
  EXPECT_FALSE(is_operator(root, careful));
  EXPECT_FALSE(may_connect(here.get(), root, std::nullopt, careful));
  EXPECT_FALSE(may_connect(here.get(), root, kGroup, careful));
  EXPECT_TRUE(may_connect(here.get(), root, gid_t{0}, careful)) << "the group is root's own";
  EXPECT_EQ(operators(careful).find("root"), std::string::npos) << operators(careful);
}

TEST(PeerCredentials, LooksUpEachGroupByItsName) {
  const group* known = ::getgrgid(0);
  ASSERT_NE(known, nullptr);
  const AccessGroups groups =
      AccessGroups::look_up({.group = known->gr_name, .admin_group = "no-such-group-here"});
  EXPECT_EQ(groups.members, gid_t{0});
  EXPECT_EQ(groups.admins, std::nullopt);
  EXPECT_EQ(groups.names.admin_group, "no-such-group-here");
  EXPECT_EQ(AccessGroups::look_up({.group = "", .admin_group = ""}).members, std::nullopt);
}

}  // namespace
}  // namespace arcomm::test
