// What comes to the daemons' port and is no daemon of ours: other versions, no proofs, garbage,
// connections that say nothing. All of it is bounded, and the daemons talk on.
#include <arpa/inet.h>
#include <grpcpp/grpcpp.h>
#include <netinet/in.h>

#include "daemon/control/access/frame_reader.h"
#include "daemon/control/peers/introduction/introduction.h"
#include "daemon/control/peers/peer_limits.h"
#include "daemon/control/rpc/http2_frame.h"
#include "proto/arcommd/v1/peer.grpc.pb.h"
#include "tests/unit/daemon/control/peers/peer_nodes.h"

namespace arcomm::test {
namespace {

using ::testing::HasSubstr;

UniqueFd connect_to(const std::string& host, std::uint16_t port = 7400) {
  UniqueFd fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in to{};
  to.sin_family = AF_INET;
  to.sin_port = htons(port);
  ::inet_pton(AF_INET, host.c_str(), &to.sin_addr);
  const timeval limit{.tv_sec = 8, .tv_usec = 0};
  ::setsockopt(fd.get(), SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
  if (::connect(fd.get(), reinterpret_cast<const sockaddr*>(&to), sizeof to) != 0) return {};
  return fd;
}

class PeerStrangersTest : public PeersTest {
 protected:
  void SetUp() override { one_ = start(1, 2); }

  std::unique_ptr<v1::PeerService::Stub> stub() {
    grpc::ChannelArguments arguments;
    arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
    arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
    return v1::PeerService::NewStub(
        grpc::CreateCustomChannel(address(1), grpc::InsecureChannelCredentials(), arguments));
  }
  static v1::GreetRequest greeting() {
    v1::GreetRequest request;
    *request.mutable_from() =
        identity_of({.address = "10.9.9.9:7400", .name = "stranger", .instance = 7});
    request.set_challenge(std::string(32, 'c'));
    return request;
  }
  template <typename Request, typename Reply>
  Outcome call(v1::PeerService::Stub& to,
               grpc::Status (v1::PeerService::Stub::*method)(grpc::ClientContext*, const Request&,
                                                             Reply*),
               const Request& request, Reply* reply) {
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(5));
    const grpc::Status status = (to.*method)(&context, request, reply);
    return {status, static_cast<Reason>(std::max(reason_of(context), 0))};
  }
  void expect_good_as_new() {
    const auto two = start(2, 2);
    EXPECT_TRUE(eventually([&] { return one_->sees(address(2)) && two->sees(address(1)); },
                           milliseconds(8000)));
  }

  std::unique_ptr<PeerNodeUnderTest> one_;
};

TEST_F(PeerStrangersTest, OfAnotherVersionAreRefusedByName) {
  v1::GreetRequest request = greeting();
  request.mutable_from()->set_version(kPeerVersion + 1);
  v1::GreetReply reply;
  const auto to = stub();
  const Outcome outcome = call(*to, &v1::PeerService::Stub::Greet, request, &reply);
  EXPECT_EQ(outcome.status.error_code(), grpc::StatusCode::UNIMPLEMENTED);
  EXPECT_EQ(outcome.reason, Reason::Version);
  EXPECT_THAT(outcome.status.error_message(), HasSubstr("stranger (10.9.9.9:7400) speaks version"));
  request = greeting();
  request.mutable_from()->set_byte_order(0x04030201);
  EXPECT_THAT(call(*to, &v1::PeerService::Stub::Greet, request, &reply).status.error_message(),
              HasSubstr("another byte order"));
}

// Says that it is whoever greets it.
class Mirror final : public v1::PeerService::Service {
 public:
  grpc::Status Greet(grpc::ServerContext*, const v1::GreetRequest* request,
                     v1::GreetReply* reply) override {
    *reply->mutable_from() = request->from();
    reply->set_challenge(std::string(32, 'c'));
    reply->set_proof(std::string(32, 'p'));
    return grpc::Status::OK;
  }
};

TEST_F(PeerStrangersTest, WhoSayTheyAreTheDaemonItselfAreNotBelieved) {
  Mirror mirror;
  grpc::ServerBuilder builder;
  builder.AddListeningPort(address(2), grpc::InsecureServerCredentials());
  builder.RegisterService(&mirror);
  const auto server = builder.BuildAndStart();
  ASSERT_NE(server, nullptr);
  EXPECT_TRUE(eventually([&] { return one_->state_of(address(2)) == Peer::State::Refused; },
                         milliseconds(8000)))
      << one_->why_of(address(2));
  EXPECT_THAT(one_->why_of(address(2)), HasSubstr("another token"));
  server->Shutdown();
  expect_good_as_new();
}

TEST_F(PeerStrangersTest, WithoutAProofGetNoPass) {
  const auto to = stub();
  v1::GreetReply greeted;
  ASSERT_TRUE(call(*to, &v1::PeerService::Stub::Greet, greeting(), &greeted).status.ok());
  EXPECT_EQ(greeted.proof().size(), 32u);
  v1::ProveRequest prove;
  prove.set_instance(7);
  prove.set_proof(greeted.proof());  // the server's own is not the client's
  v1::ProveReply proven;
  const Outcome outcome = call(*to, &v1::PeerService::Stub::Prove, prove, &proven);
  EXPECT_EQ(outcome.status.error_code(), grpc::StatusCode::PERMISSION_DENIED);
  EXPECT_THAT(outcome.status.error_message(), HasSubstr("another token"));
  v1::AnnounceRequest announce;
  v1::AnnounceReply announced;
  EXPECT_EQ(call(*to, &v1::PeerService::Stub::Announce, announce, &announced).status.error_code(),
            grpc::StatusCode::UNAUTHENTICATED);
  v1::ConnectRequest connect;
  v1::ConnectReply connected;
  EXPECT_EQ(call(*to, &v1::PeerService::Stub::Connect, connect, &connected).status.error_code(),
            grpc::StatusCode::UNAUTHENTICATED);
  EXPECT_TRUE(one_->heard().empty());
}

TEST_F(PeerStrangersTest, CannotUseThePassOfAnotherConnection) {
  const auto token = PeerToken::read(folder_ + "/token").value();
  const auto to = stub();
  v1::GreetReply greeted;
  const v1::GreetRequest request = greeting();
  ASSERT_TRUE(call(*to, &v1::PeerService::Stub::Greet, request, &greeted).status.ok());
  const Greeting said{.challenge_of_client = request.challenge(),
                      .challenge_of_server = greeted.challenge(),
                      .client = request.from(),
                      .server = greeted.from()};
  EXPECT_EQ(greeted.proof(), proof_of_server(token, said));
  v1::ProveRequest prove;
  prove.set_instance(7);
  prove.set_proof(proof_of_client(token, said));
  v1::ProveReply proven;
  ASSERT_TRUE(call(*to, &v1::PeerService::Stub::Prove, prove, &proven).status.ok());
  v1::BeatRequest beat;
  beat.mutable_pass()->set_instance(7);
  beat.mutable_pass()->set_pass(proven.pass());
  v1::BeatReply alive;
  EXPECT_TRUE(call(*to, &v1::PeerService::Stub::Beat, beat, &alive).status.ok());
  EXPECT_EQ(alive.instance(), one_->self().instance);
  const auto other = stub();
  EXPECT_EQ(call(*other, &v1::PeerService::Stub::Beat, beat, &alive).status.error_code(),
            grpc::StatusCode::UNAUTHENTICATED);
}

TEST_F(PeerStrangersTest, FindNoServiceForClientsOrOperators) {
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  const auto channel =
      grpc::CreateCustomChannel(address(1), grpc::InsecureChannelCredentials(), arguments);
  grpc::ClientContext context, another;
  v1::StatusReply status;
  v1::AttachReply attached;
  EXPECT_EQ(v1::NodeAdmin::NewStub(channel)->GetStatus(&context, {}, &status).error_code(),
            grpc::StatusCode::UNIMPLEMENTED);
  EXPECT_EQ(v1::NodeControl::NewStub(channel)->Attach(&another, {}, &attached).error_code(),
            grpc::StatusCode::UNIMPLEMENTED);
}

TEST_F(PeerStrangersTest, WithGarbageAreClosedAtOnce) {
  for (const std::string& garbage :
       {std::string("GET / HTTP/1.1\r\n\r\n"), std::string(500, '\0'), std::string("\x16\x03\x01"),
        std::string("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n") + std::string(300, '\xff')}) {
    const UniqueFd fd = connect_to(host(1));
    ASSERT_TRUE(fd);
    ASSERT_GT(::send(fd.get(), garbage.data(), garbage.size(), MSG_NOSIGNAL), 0);
    const auto begun = std::chrono::steady_clock::now();
    char bytes[4096];
    while (::recv(fd.get(), bytes, sizeof bytes, 0) > 0) {
    }
    EXPECT_LT(std::chrono::steady_clock::now() - begun, milliseconds(3000));
  }
  expect_good_as_new();
}

TEST_F(PeerStrangersTest, WhoSayNothingAreFewAndPushNobodyOut) {
  std::vector<UniqueFd> silent;
  for (std::size_t i = 0; i < 4 * kMostStrangers; ++i) silent.push_back(connect_to(host(1)));
  EXPECT_TRUE(eventually([&] { return one_->peers().turned_away() > 0; }));
  EXPECT_LE(one_->on_loop([&] { return one_->peers().strangers(); }), kMostStrangers);
  expect_good_as_new();
}

TEST_F(PeerStrangersTest, WithAHalfOpenCallHaveSoLongAndNoLonger) {
  // A connection that speaks HTTP/2 and never proves anything.
  const UniqueFd fd = connect_to(host(1));
  std::string greeting(FrameReader::kPreface);
  append_http2_frame(greeting, Http2Frame::Settings, "");
  ASSERT_GT(::send(fd.get(), greeting.data(), greeting.size(), MSG_NOSIGNAL), 0);
  const auto begun = std::chrono::steady_clock::now();
  char bytes[4096];
  while (::recv(fd.get(), bytes, sizeof bytes, 0) > 0) {
  }
  const auto took = std::chrono::steady_clock::now() - begun;
  EXPECT_LT(took, kProofLimit + milliseconds(1500));
  EXPECT_GT(took, kProofLimit - milliseconds(500));
}

TEST_F(PeerStrangersTest, WhoGreetOnlyOnceTheServerStopsAreHungUpOn) {
  const UniqueFd early = connect_to(host(1));
  ASSERT_TRUE(early);
  ASSERT_TRUE(
      eventually([&] { return one_->on_loop([&] { return one_->peers().strangers(); }) == 1; }));
  one_->stop_server();
  const UniqueFd late = connect_to(host(1));
  std::string greeting(FrameReader::kPreface);
  append_http2_frame(greeting, Http2Frame::Settings, "");
  for (const UniqueFd* fd : {&early, &late}) {
    ASSERT_GT(::send(fd->get(), greeting.data(), greeting.size(), MSG_NOSIGNAL), 0);
    const auto begun = std::chrono::steady_clock::now();
    char byte = 0;
    EXPECT_EQ(::recv(fd->get(), &byte, 1, 0), 0);
    EXPECT_LT(std::chrono::steady_clock::now() - begun, milliseconds(1500));
  }
}

TEST_F(PeerStrangersTest, OnTheDataPortAreTurnedAwayAndTheLoopGoesOn) {
  std::vector<UniqueFd> strangers;
  for (int i = 0; i < 200; ++i) {
    strangers.push_back(connect_to(host(1), 7401));
    if (i % 2 == 0) (void)::send(strangers.back().get(), "garbage", 7, MSG_NOSIGNAL);
  }
  expect_good_as_new();
}

}  // namespace
}  // namespace arcomm::test
