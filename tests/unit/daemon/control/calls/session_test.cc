// Attaching, proving who one is, and what ends a session.
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>

#include "proto/ring/segment.h"
#include "tests/support/sessions/descriptor_message.h"
#include "tests/unit/daemon/control/control_fixture.h"

namespace arcomm::test {
namespace {

using grpc::StatusCode;

TEST_F(ControlTest, AttachHandsOverARingSegmentAndADoorbellByTicket) {
  start();
  Session session = open_session();
  std::vector<UniqueFd> fds;
  const auto answer =
      session.fds->ask(fd_request(FdMessageKind::Fetch, session.attached.fd_ticket()), {}, &fds);
  ASSERT_TRUE(answer);
  ASSERT_EQ(answer->code, 0u);
  ASSERT_EQ(answer->count, 2u);
  ASSERT_EQ(fds.size(), 2u);
  EXPECT_TRUE(ring::Segment::open(std::move(fds[0])));
  EXPECT_EQ(session.attached.device(), "host:0");
  EXPECT_EQ(session.attached.default_timeout_ms(), Settings().op.default_timeout_ms)
      << "the library has no default of its own";
  EXPECT_EQ(status().sessions(), 1u);
}

TEST_F(ControlTest, KnowsTheCallersPidAndUidFromTheKernel) {
  start();
  const Session session = open_session();
  v1::SessionsReply reply;
  ASSERT_TRUE(call(*admin_, &v1::NodeAdmin::Stub::ListSessions, v1::Empty(), &reply).status.ok());
  ASSERT_EQ(reply.sessions_size(), 1);
  EXPECT_EQ(reply.sessions(0).pid(), ::getpid());
  EXPECT_EQ(reply.sessions(0).uid(), ::getuid());
  EXPECT_EQ(reply.sessions(0).process_name(), "test");
}

TEST_F(ControlTest, RefusesAnotherMajorRingVersionNamingBoth) {
  start();
  v1::AttachReply reply;
  const Outcome outcome = attach(reply, kRingAbiMajor + 1);
  EXPECT_EQ(outcome.status.error_code(), StatusCode::FAILED_PRECONDITION);
  EXPECT_EQ(outcome.reason, Reason::Version);
  for (const int major : {+kRingAbiMajor, kRingAbiMajor + 1}) {
    EXPECT_NE(outcome.status.error_message().find(std::to_string(major) + ".0"), std::string::npos)
        << outcome.status.error_message();
  }
}

TEST_F(ControlTest, RefusesAnUnknownDeviceNamingTheOnesThereAre) {
  start();
  v1::AttachReply reply;
  const Outcome outcome = attach(reply, kRingAbiMajor, "gpu:7");
  EXPECT_EQ(outcome.status.error_code(), StatusCode::NOT_FOUND);
  EXPECT_NE(outcome.status.error_message().find("host:0"), std::string::npos);
}

TEST_F(ControlTest, RefusesEveryAdminCallOnTheClientSocket) {
  start();
  const auto wrong = v1::NodeAdmin::NewStub(channel("client.sock"));
  v1::StatusReply status_reply;
  const Outcome outcome = call(*wrong, &v1::NodeAdmin::Stub::GetStatus, v1::Empty(), &status_reply);
  EXPECT_EQ(outcome.status.error_code(), StatusCode::PERMISSION_DENIED);
  EXPECT_EQ(outcome.reason, Reason::Permission);
  EXPECT_NE(outcome.status.error_message().find("admin.sock"), std::string::npos);
  v1::ReloadReply reload_reply;
  EXPECT_EQ(
      call(*wrong, &v1::NodeAdmin::Stub::Reload, v1::Empty(), &reload_reply).status.error_code(),
      StatusCode::PERMISSION_DENIED);
  grpc::ClientContext context;
  const auto reader = wrong->Tune(&context, v1::TuneRequest());
  v1::TuneReply reply;
  EXPECT_FALSE(reader->Read(&reply));
  EXPECT_EQ(reader->Finish().error_code(), StatusCode::PERMISSION_DENIED);
}

TEST_F(ControlTest, RefusesAWrongTokenAndAnUnknownSession) {
  start();
  Session session = open_session();
  v1::BufferReply reply;
  Session forged;
  forged.ref = session.ref;
  forged.ref.set_session_token(std::string(kTokenBytes, 'x'));
  EXPECT_EQ(allocate(forged, 4096, &reply).status.error_code(), StatusCode::PERMISSION_DENIED);
  forged.ref.set_session_token("short");
  EXPECT_EQ(allocate(forged, 4096, &reply).status.error_code(), StatusCode::PERMISSION_DENIED);
  forged.ref.set_session(~0ull);
  EXPECT_EQ(allocate(forged, 4096, &reply).status.error_code(), StatusCode::NOT_FOUND);
  FdClient stranger(path("fd.sock"));
  FdMessage message = hello(session.attached);
  message.token[3] ^= std::byte{1};
  const auto answer = stranger.ask(message);
  ASSERT_TRUE(answer);
  EXPECT_EQ(answer->code, static_cast<std::uint32_t>(ErrorCode::PermissionDenied));
}

TEST_F(ControlTest, GivesNoSessionAnIdThatAnEarlierDaemonGave) {
  start();
  const std::uint64_t before = open_session().attached.session();
  stop();
  start();
  EXPECT_NE(open_session().attached.session(), before);
}

TEST_F(ControlTest, DetachFreesTheSessionWithoutCountingALoss) {
  start();
  Session session = open_session();
  EXPECT_TRUE(detach(session).status.ok());
  EXPECT_EQ(worker_->open_sessions(), 0u);
  EXPECT_EQ(metrics_.sessions.value(), 0);
  EXPECT_EQ(metrics_.sessions_lost.total(), 0u);
  EXPECT_FALSE(session.fds->receive()) << "the descriptor connection should have been closed";
}

TEST_F(ControlTest, TellsALateCallWhyItsSessionIsGone) {
  start();
  Session session = open_session();
  worker_->lose(SessionId::from_bits(session.ref.session()), Reason::Quarantined, "tail went back");
  ASSERT_TRUE(eventually([&] { return metrics_.sessions.value() == 0; }));
  v1::BufferReply reply;
  const Outcome outcome = allocate(session, 4096, &reply);
  EXPECT_EQ(outcome.status.error_code(), StatusCode::FAILED_PRECONDITION);
  EXPECT_EQ(outcome.reason, Reason::Quarantined);
  EXPECT_NE(outcome.status.error_message().find("tail went back"), std::string::npos);
  EXPECT_EQ(metrics_.sessions_lost[Reason::Quarantined].value(), 1u);
}

// The best of five: the promise is about the daemon, not about what else this machine does.
TEST_F(ControlTest, ReapsASessionWithinTenMillisecondsOfTheHangUp) {
  start();
  auto best = std::chrono::steady_clock::duration::max();
  for (std::size_t i = 0; i < 5; ++i) {
    Session session = open_session();
    v1::BufferReply buffer;
    ASSERT_TRUE(allocate(session, 8192, &buffer).status.ok());
    const auto before = std::chrono::steady_clock::now();
    session.fds->hang_up();
    ASSERT_TRUE(eventually([&] { return worker_->closed().size() == i + 1; }));
    best = std::min(best, std::chrono::steady_clock::now() - before);
    EXPECT_EQ(worker_->closed()[i].reason, Reason::RemoteDied);
    EXPECT_TRUE(eventually(
        [&] { return metrics_.registered_bytes.value() == 0 && metrics_.sessions.value() == 0; }));
    EXPECT_EQ(worker_->buffers(), 0u);
  }
  EXPECT_LT(best, milliseconds(10))
      << std::chrono::duration_cast<std::chrono::microseconds>(best).count() << " us";
}

// The child's descriptor connection is also held by this process, so that only its pidfd can tell
// of its death.
TEST_F(ControlTest, ReapsASessionWhoseProcessDiesWhileItsSocketLivesOn) {
  start();
  v1::AttachReply attached;
  ASSERT_TRUE(attach(attached).status.ok());
  FdMessage message = hello(attached);
  int pair[2];
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_SEQPACKET, 0, pair), 0);
  const std::string socket_path = path("fd.sock");
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    FdClient connection(socket_path);
    const auto answer = connection.ask(message);
    const char byte = answer && answer->code == 0 ? 'y' : 'n';
    support::send_with_descriptor(pair[1], &byte, 1, connection.fd());
    for (;;) ::pause();
  }
  char byte = 0;
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  iovec part{&byte, 1};
  msghdr header{};
  header.msg_iov = &part;
  header.msg_iovlen = 1;
  header.msg_control = control;
  header.msg_controllen = sizeof(control);
  ASSERT_EQ(::recvmsg(pair[0], &header, 0), 1);
  ASSERT_EQ(byte, 'y');
  int held = -1;
  std::memcpy(&held, CMSG_DATA(CMSG_FIRSTHDR(&header)), sizeof(held));
  UniqueFd keeps_the_socket_open(held);
  EXPECT_TRUE(worker_->closed().empty());
  ::kill(child, SIGKILL);
  EXPECT_TRUE(eventually([&] { return !worker_->closed().empty(); }));
  ::waitpid(child, nullptr, 0);
  ::close(pair[0]);
  ::close(pair[1]);
}

TEST_F(ControlTest, ReapsASessionWhoseConnectionDropsBeforeTheHello) {
  start();
  {
    const auto own = v1::NodeControl::NewStub(channel("client.sock"));
    v1::AttachRequest request;
    request.set_ring_abi_major(kRingAbiMajor);
    v1::AttachReply reply;
    ASSERT_TRUE(call(*own, &v1::NodeControl::Stub::Attach, request, &reply).status.ok());
    EXPECT_EQ(worker_->open_sessions(), 1u);
  }
  EXPECT_TRUE(eventually([&] { return worker_->open_sessions() == 0; }));
}

TEST_F(ControlTest, ReapsASessionThatNeverSaysHello) {
  start();
  v1::AttachReply reply;
  ASSERT_TRUE(attach(reply).status.ok());
  EXPECT_EQ(worker_->open_sessions(), 1u);
  EXPECT_TRUE(eventually([&] { return worker_->open_sessions() == 0; }, milliseconds(7000)));
  ASSERT_FALSE(worker_->closed().empty());
  EXPECT_EQ(worker_->closed()[0].reason, Reason::Timeout);
}

TEST_F(ControlTest, ABindsASessionToOneDescriptorConnectionOnly) {
  start();
  Session session = open_session();
  FdClient second(path("fd.sock"));
  const auto answer = second.ask(hello(session.attached));
  ASSERT_TRUE(answer);
  EXPECT_EQ(answer->code, static_cast<std::uint32_t>(ErrorCode::AlreadyExists));
  second.hang_up();
  EXPECT_EQ(status().sessions(), 1u);
}

TEST_F(ControlTest, RefusesNewSessionsDuringShutdownAndStillLetsOldOnesDetach) {
  start();
  Session session = open_session();
  plane_->begin_shutdown();
  ASSERT_TRUE(eventually([&] { return status().state() == "draining"; }));
  v1::AttachReply reply;
  const Outcome outcome = attach(reply);
  EXPECT_EQ(outcome.status.error_code(), StatusCode::UNAVAILABLE);
  EXPECT_EQ(outcome.reason, Reason::ShuttingDown);
  EXPECT_TRUE(detach(session).status.ok());
}

TEST_F(ControlTest, EndsACallThatTheWorkerDoesNotAnswer) {
  start();
  Session session = open_session();
  worker_->silent = true;
  v1::StatusReply reply;
  ASSERT_TRUE(call(*admin_, &v1::NodeAdmin::Stub::GetStatus, v1::Empty(), &reply).status.ok());
  EXPECT_TRUE(reply.state().starts_with("degraded: host:0")) << reply.state();
  EXPECT_EQ(reply.workers(0).state(), "stuck");
}

TEST_F(ControlTest, StopAnswersWhatIsPendingWithShuttingDown) {
  start();
  Session session = open_session();
  Outcome outcome;
  std::thread waiting([&] { outcome = join(session, unique_id('s'), 0, 2, nullptr, 60'000); });
  v1::CommunicatorsReply comms;
  ASSERT_TRUE(eventually([&] {
    return call(*admin_, &v1::NodeAdmin::Stub::ListCommunicators, v1::Empty(), &comms)
               .status.ok() &&
           comms.communicators_size() == 1;
  }));
  EXPECT_EQ(comms.communicators(0).state(), "forming 1/2");
  EXPECT_EQ(comms.communicators(0).diagnosis(), "rank 1 of 2 has not called");
  stop();
  waiting.join();
  EXPECT_EQ(outcome.status.error_code(), StatusCode::UNAVAILABLE);
  EXPECT_EQ(outcome.reason, Reason::ShuttingDown);
}

TEST_F(ControlTest, ASilentClientOfThousandCyclesLeavesNoDescriptorBehind) {
  start();
  const auto count_fds = [] {
    return std::distance(std::filesystem::directory_iterator("/proc/self/fd"),
                         std::filesystem::directory_iterator());
  };
  for (int i = 0; i < 20; ++i) detach(open_session());
  ASSERT_TRUE(eventually([&] { return worker_->open_sessions() == 0; }));
  const auto before = count_fds();
  for (int i = 0; i < 300; ++i) {
    Session session = open_session();
    v1::BufferReply buffer;
    ASSERT_TRUE(allocate(session, 4096, &buffer).status.ok());
    if (i % 2 == 0) {
      ASSERT_TRUE(detach(session).status.ok());
    } else {
      session.fds->hang_up();
      ASSERT_TRUE(eventually([&] { return metrics_.sessions.value() == 0; }));
    }
  }
  EXPECT_TRUE(eventually([&] { return count_fds() <= before; }))
      << before << " before, " << count_fds() << " after";
  EXPECT_EQ(metrics_.registered_bytes.value(), 0);
}

// Without the loop, and without a trace in the metrics.
TEST_F(ControlTest, ItsGrpcServerAnswersAHeartbeat) {
  start();
  for (std::uint64_t beat = 0; beat < 20; ++beat) {
    const std::uint64_t before = plane_->rpc_beats();
    plane_->nudge_rpc();
    plane_->nudge_rpc();  // while it is under way
    ASSERT_TRUE(eventually([&] { return plane_->rpc_beats() > before; })) << beat;
  }
  EXPECT_EQ(metrics_.control_calls.total(), 0u);
}

}  // namespace
}  // namespace arcomm::test
