// Who gets room for in-stream operations on GPUs, and what keeps a rank from them.
#include <gmock/gmock.h>
#include <grp.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>

#include <csignal>
#include <filesystem>
#include <future>

#include "proto/gpu/launch_table.h"
#include "tests/unit/daemon/control/access/http2_bytes.h"
#include "tests/unit/daemon/control/calls/gpu_fixture.h"

namespace arcomm::test {
namespace {

// A process of a uid of its own that has attached, and says nothing more.
pid_t attach_as_another(const std::string& client_socket) {
  const group* known = ::getgrnam("nogroup");
  if (known == nullptr ||
      ::chmod(std::filesystem::path(client_socket).parent_path().c_str(), 0755) != 0)
    return -1;
  const gid_t gid = known->gr_gid;
  v1::AttachRequest request;
  request.set_ring_abi_major(kRingAbiMajor);
  request.set_process_name("another");
  const std::string message = request.SerializeAsString();
  const std::string prefix{'\0', '\0', '\0', '\0', static_cast<char>(message.size())};
  const std::string bytes = greeting() + call_of(1, "/arcommd.v1.NodeControl/Attach") +
                            frame(0, prefix + message, kEndStream, 1);
  const pid_t child = ::fork();
  if (child != 0) return child;
  if (::setgroups(1, &gid) != 0 || ::setgid(54'322) != 0 || ::setuid(54'321) != 0) ::_exit(2);
  const int connection = ::socket(AF_UNIX, SOCK_STREAM, 0);
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::strncpy(address.sun_path, client_socket.c_str(), sizeof(address.sun_path) - 1);
  if (::connect(connection, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0 ||
      ::send(connection, bytes.data(), bytes.size(), MSG_NOSIGNAL) < 0)
    ::_exit(3);
  for (;;) ::pause();
}

class GpuInStreamRoomTest : public GpuTest {
 protected:
  // Of two ranks; what the worker was told of the first.
  InStreamHindrance form(const Session& session, char fill) {
    auto other = std::async(std::launch::async, [&] {
      return join(session, unique_id(fill), 1, 2, nullptr, 3000, kSecond).status.ok();
    });
    EXPECT_TRUE(join(session, unique_id(fill), 0, 2, nullptr, 3000, kFirst).status.ok());
    EXPECT_TRUE(other.get());
    return worker_->formed().back().ranks.front().in_stream_hindrance;
  }
};

// As long as the user is the only one, all of it is that user's.
TEST_F(GpuInStreamRoomTest, WhoHasAllThatIsInStreamGetsNoMoreOnceAnotherUserIsThere) {
  if (::getuid() != 0) GTEST_FAIL() << "run this test as root: it connects as another uid";
  settings_.access.group = "nogroup";
  start({kFirst, kSecond});
  worker_->in_stream = true;
  const Session session = open_session();
  EXPECT_EQ(form(session, 'a'), InStreamHindrance::None);
  EXPECT_EQ(form(session, 'b'), InStreamHindrance::None);
  EXPECT_EQ(limit("in_stream_ranks of " + kFirst).used(), 2u);

  const pid_t other = attach_as_another(path("client.sock"));
  ASSERT_GT(other, 0);
  EXPECT_TRUE(eventually([&] { return worker_->open_sessions() == 2; }));
  EXPECT_EQ(form(session, 'c'), InStreamHindrance::KeptForOthers);
  EXPECT_EQ(limit("in_stream_ranks of " + kFirst).used(), 2u);
  ::kill(other, SIGKILL);
  EXPECT_EQ(::waitpid(other, nullptr, 0), other);
  EXPECT_TRUE(eventually([&] { return worker_->open_sessions() == 1; }));
  EXPECT_EQ(form(session, 'd'), InStreamHindrance::None);
}

TEST_F(GpuInStreamRoomTest, ACommunicatorThatIsBuiltAnewKeepsItsInStreamRoom) {
  if (::getuid() != 0) GTEST_FAIL() << "run this test as root: it connects as another uid";
  settings_.access.group = "nogroup";
  start({kFirst, kSecond});
  worker_->in_stream = true;
  const Session session = open_session();
  EXPECT_EQ(form(session, 'a'), InStreamHindrance::None);
  const pid_t other = attach_as_another(path("client.sock"));
  ASSERT_GT(other, 0);
  EXPECT_TRUE(eventually([&] { return worker_->open_sessions() == 2; }));
  worker_->revoke(worker_->formed().back().unique_id, 1, Reason::RemoteDied);
  EXPECT_EQ(form(session, 'a'), InStreamHindrance::None);
  EXPECT_EQ(limit("in_stream_ranks of " + kFirst).used(), 1u);
  EXPECT_EQ(form(session, 'b'), InStreamHindrance::KeptForOthers);
  ::kill(other, SIGKILL);
  EXPECT_EQ(::waitpid(other, nullptr, 0), other);
}

// The worker decides for all ranks what follows from it.
TEST_F(GpuInStreamRoomTest, TellsTheWorkerWhatKeepsARankFromInStreamOperations) {
  start({kFirst, kSecond});
  const Session session = open_session("gpu");
  v1::CreateCommunicatorRequest request;
  *request.mutable_session() = session.ref;
  request.set_unique_id(unique_id('1'));
  request.set_ranks(1);
  request.set_timeout_ms(3000);
  request.add_visible_gpus(kFirst);
  request.add_visible_gpus(kSecond);
  request.set_in_stream_abi(kInStreamAbi - 1);
  request.set_in_stream_hindrance(static_cast<std::uint32_t>(InStreamHindrance::SmLimit));
  request.set_launch_table_version(kLaunchTableVersion);
  v1::CreateCommunicatorReply reply;
  ASSERT_TRUE(
      call(*client_, &v1::NodeControl::Stub::CreateCommunicator, request, &reply).status.ok());
  const auto formed = worker_->formed();
  ASSERT_EQ(formed.size(), 1u);
  const RankSpec& rank = formed[0].ranks[0];
  EXPECT_THAT(rank.visible_gpus, testing::ElementsAre(kFirst, kSecond));
  EXPECT_EQ(rank.in_stream_abi, kInStreamAbi - 1);
  EXPECT_EQ(rank.in_stream_hindrance, InStreamHindrance::SmLimit);
  const Result<LaunchTable> launches = LaunchTable::decode(reply.launch_table());
  ASSERT_TRUE(launches.ok()) << launches.error().message;
  EXPECT_EQ(*launches, worker_->launches);
}

// It would take ways of its own, and the others would wait for it until their deadlines.

}  // namespace
}  // namespace arcomm::test
