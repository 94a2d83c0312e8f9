// What a control call makes of a daemon that is late, breaks off or talks nonsense: it ends by its
// deadline with a reason, and the next call finds a fresh connection.
#include "client/src/control/control_channel.h"

#include <gtest/gtest.h>
#include <sys/socket.h>

#include <algorithm>
#include <chrono>
#include <random>

#include "client/src/control/node_control.h"
#include "tests/unit/client/control/fake_grpc_server.h"

namespace arcomm::client {
namespace {

using std::chrono::milliseconds;
using Clock = Deadline::Clock;
using Scene = FakeGrpcServer::Scene;

constexpr milliseconds kSlack{100};
constexpr milliseconds kShort{200};      // of calls that shall meet their deadline
constexpr milliseconds kGenerous{5000};  // of calls that shall end long before
constexpr milliseconds kSoon{1000};
constexpr const char* kMethod = "/arcommd.v1.NodeControl/Describe";

class ControlChannelAgainst : public ::testing::Test {
 protected:
  // The first connection plays `scene`, the second behaves.
  void against(Scene scene) {
    server_ = std::make_unique<FakeGrpcServer>(
        std::vector<Scene>{std::move(scene), FakeGrpcServer::answering("fresh")});
    channel_ = std::make_unique<ControlChannel>(server_->path());
  }
  void TearDown() override {
    channel_.reset();
    server_.reset();
  }

  Error failure(milliseconds timeout, std::string_view request = "question") {
    const auto begin = Clock::now();
    const Result<std::string> reply = channel_->call(kMethod, request, Deadline::after(timeout));
    took_ = Clock::now() - begin;
    EXPECT_LE(took_, timeout + kSlack);
    if (reply) {
      ADD_FAILURE() << "succeeded with " << reply->size() << " bytes";
      return {ErrorCode::Ok, Reason::None, "", -1};
    }
    return reply.error();
  }
  void expect_soon() const { EXPECT_LT(took_, kSoon); }
  void expect_next_call_works() {
    const Result<std::string> reply = channel_->call(kMethod, "next", Deadline::after(kGenerous));
    ASSERT_TRUE(reply) << reply.error().to_string();
    EXPECT_EQ(*reply, "fresh");
  }

  std::unique_ptr<FakeGrpcServer> server_;
  std::unique_ptr<ControlChannel> channel_;
  Clock::duration took_{};
};

TEST_F(ControlChannelAgainst, AnAnswerAfterTheDeadlineIsNotTakenForTheNextCalls) {
  against([](FakePeer& peer) {
    const std::uint32_t stream = peer.read_request();
    std::this_thread::sleep_for(kShort + milliseconds(50));
    peer.send(http2::answer(stream, "late"));
    peer.wait_for_hang_up();
  });
  const Error why = failure(kShort);
  EXPECT_EQ(why.code, ErrorCode::DeadlineExceeded);
  EXPECT_EQ(why.reason, Reason::Timeout);
  expect_next_call_works();
}

TEST_F(ControlChannelAgainst, AServerThatKeepsTalkingWithoutAnsweringStillMeetsTheDeadline) {
  against([](FakePeer& peer) {
    peer.read_request();
    std::string pings;
    for (int i = 0; i < 1000; ++i) pings += http2::frame(http2::kPing, 1, 0, "pingpong");
    while (peer.send(pings)) {
    }
  });
  const Error why = failure(kShort);
  EXPECT_EQ(why.code, ErrorCode::DeadlineExceeded) << why.to_string();
  expect_next_call_works();
}

TEST_F(ControlChannelAgainst, AnAnswerThatDripsInEndsAtTheDeadline) {
  against([](FakePeer& peer) {
    const std::uint32_t stream = peer.read_request();
    const std::string whole = http2::answer(stream, std::string(4096, 'x'));
    for (const char byte : whole) {
      if (!peer.send({&byte, 1})) return;
      std::this_thread::sleep_for(milliseconds(1));
    }
  });
  EXPECT_EQ(failure(kShort).code, ErrorCode::DeadlineExceeded);
  expect_next_call_works();
}

TEST_F(ControlChannelAgainst, AServerThatDoesNotReadMeetsTheDeadline) {
  against([](FakePeer& peer) { peer.wait_for_hang_up(); });
  const Error why = failure(kShort, std::string(8 << 20, 'x'));
  EXPECT_EQ(why.code, ErrorCode::DeadlineExceeded) << why.to_string();
  expect_next_call_works();
}

TEST_F(ControlChannelAgainst, ACloseBeforeTheAnswerSaysSo) {
  against([](FakePeer& peer) { peer.read_request(); });
  const Error why = failure(kGenerous);
  EXPECT_EQ(why.code, ErrorCode::Unavailable);
  EXPECT_EQ(why.reason, Reason::DaemonLost);
  expect_soon();
  expect_next_call_works();
}

TEST_F(ControlChannelAgainst, ACloseInTheMiddleOfTheAnswerSaysSo) {
  against([](FakePeer& peer) {
    const std::uint32_t stream = peer.read_request();
    const std::string data = http2::answer_data(stream, std::string(1000, 'x'));
    peer.send(http2::answer_start(stream) + data.substr(0, data.size() / 2));
  });
  const Error why = failure(kGenerous);
  EXPECT_EQ(why.reason, Reason::DaemonLost) << why.to_string();
  expect_soon();
  expect_next_call_works();
}

TEST_F(ControlChannelAgainst, ACloseBetweenMessageAndStatusIsNoSuccess) {
  against([](FakePeer& peer) {
    const std::uint32_t stream = peer.read_request();
    peer.send(http2::answer_start(stream) + http2::answer_data(stream, "whole"));
  });
  EXPECT_EQ(failure(kGenerous).reason, Reason::DaemonLost);
  expect_soon();
  expect_next_call_works();
}

TEST_F(ControlChannelAgainst, AStatusWithoutAMessageIsTheCallsError) {
  against([](FakePeer& peer) {
    const std::uint32_t stream = peer.read_request();
    peer.send(http2::answer_end(stream, {{":status", "200"},
                                         {"content-type", "application/grpc"},
                                         {"grpc-status", "5"},
                                         {"grpc-message", "no%20such%20member"},
                                         {"arcomm-rank", "3"}}));
    FakeGrpcServer::answering("fresh")(peer);
  });
  const Error why = failure(kGenerous);
  EXPECT_EQ(why.code, ErrorCode::NotFound);
  EXPECT_EQ(why.message, "no such member");
  EXPECT_EQ(why.rank, 3);
  expect_next_call_works();
}

TEST_F(ControlChannelAgainst, AResetStreamEndsTheCall) {
  against([](FakePeer& peer) {
    const std::uint32_t stream = peer.read_request();
    peer.send(http2::frame(http2::kReset, 0, stream, std::string("\0\0\0\2", 4)));
    FakeGrpcServer::answering("fresh")(peer);  // the connection itself is in order
  });
  EXPECT_EQ(failure(kGenerous).reason, Reason::DaemonLost);
  expect_soon();
  expect_next_call_works();
}

TEST_F(ControlChannelAgainst, AGoodbyeInsteadOfAnAnswerEndsTheCall) {
  against([](FakePeer& peer) {
    peer.read_request();
    peer.send(http2::frame(http2::kGoaway, 0, 0, std::string(8, '\0')));
    peer.wait_for_hang_up();
  });
  EXPECT_EQ(failure(kGenerous).reason, Reason::DaemonLost);
  expect_soon();
  expect_next_call_works();
}

TEST_F(ControlChannelAgainst, ASocketOfAnotherProtocolIsRecognised) {
  against([](FakePeer& peer) {
    peer.send("HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n");
    peer.wait_for_hang_up();
  });
  EXPECT_EQ(failure(kGenerous).code, ErrorCode::Unavailable);
  expect_soon();
  expect_next_call_works();
}

TEST_F(ControlChannelAgainst, GarbageInPlaceOfFramesEndsTheCall) {
  for (std::uint32_t seed = 1; seed <= 20; ++seed) {
    against([seed](FakePeer& peer) {
      peer.read_request();
      std::mt19937 random(seed);
      std::string garbage(100'000, '\0');
      std::generate(garbage.begin(), garbage.end(),
                    [&random] { return static_cast<char>(random()); });
      peer.send(garbage);
      peer.wait_for_hang_up();
    });
    EXPECT_EQ(failure(kGenerous).code, ErrorCode::Unavailable) << "seed " << seed;
    expect_soon();
    expect_next_call_works();
    TearDown();
  }
}

TEST_F(ControlChannelAgainst, FramesThatBreakTheProtocolEndTheCall) {
  const std::string broken[] = {
      http2::frame(http2::kData, 0, 0, "data of no stream"),
      http2::frame(http2::kHeaders, http2::kEndHeaders, 1, "\xff\xff\xff\xff\xff\xff\xff"),
      http2::frame(http2::kContinuation, 0, 1, "continues nothing"),
      http2::frame(http2::kSettings, 0, 0, "odd"),
      http2::frame(http2::kPing, 0, 0, "short"),
      http2::frame(http2::kData, 0, 1, std::string(70'000, 'x')),  // beyond the frame's limit
  };
  for (const std::string& bytes : broken) {
    against([&bytes](FakePeer& peer) {
      peer.read_request();
      peer.send(bytes);
      peer.wait_for_hang_up();
    });
    EXPECT_EQ(failure(kGenerous).code, ErrorCode::Unavailable) << "frame " << &bytes - broken;
    expect_soon();
    expect_next_call_works();
    TearDown();
  }
}

TEST_F(ControlChannelAgainst, AMessageLengthBeyondReasonIsRefused) {
  against([](FakePeer& peer) {
    const std::uint32_t stream = peer.read_request();
    peer.send(http2::answer_start(stream) +
              http2::frame(http2::kData, 0, stream, std::string("\0\xff\xff\xff\xff", 5)));
    peer.wait_for_hang_up();
  });
  const Error why = failure(kGenerous);
  EXPECT_EQ(why.code, ErrorCode::Internal);
  EXPECT_EQ(why.reason, Reason::Corrupt);
  expect_soon();
  expect_next_call_works();
}

TEST_F(ControlChannelAgainst, AHeaderBeyondReasonIsRefused) {
  against([](FakePeer& peer) {
    const std::uint32_t stream = peer.read_request();
    const std::string block =
        http2::header_block({{":status", "200"}, {"grpc-message", std::string(1 << 20, 'x')}});
    constexpr std::size_t kPart = 16384;
    peer.send(http2::frame(http2::kHeaders, 0, stream, std::string_view(block).substr(0, kPart)));
    for (std::size_t at = kPart; at < block.size(); at += kPart) {
      const bool last = at + kPart >= block.size();
      if (!peer.send(http2::frame(http2::kContinuation, last ? http2::kEndHeaders : std::uint8_t{0},
                                  stream, std::string_view(block).substr(at, kPart)))) {
        return;
      }
    }
    peer.wait_for_hang_up();
  });
  EXPECT_EQ(failure(kGenerous).code, ErrorCode::Unavailable);
  expect_soon();
  expect_next_call_works();
}

TEST_F(ControlChannelAgainst, HeadersWithoutEndEndTheCall) {
  against([](FakePeer& peer) {
    const std::uint32_t stream = peer.read_request();
    const std::string block = http2::header_block({{"x", std::string(8000, 'x')}});
    if (!peer.send(http2::frame(http2::kHeaders, 0, stream, block))) return;
    while (peer.send(http2::frame(http2::kContinuation, 0, stream, block))) {
    }
  });
  EXPECT_NE(failure(kShort).code, ErrorCode::Ok);
  expect_next_call_works();
}

TEST_F(ControlChannelAgainst, AFloodOnAnIdleConnectionDoesNotHoldTheNextCallUp) {
  against([](FakePeer& peer) {
    peer.send(http2::answer(peer.read_request(), "first"));
    std::string pings;
    for (int i = 0; i < 1000; ++i) pings += http2::frame(http2::kPing, 1, 0, "pingpong");
    while (peer.send(pings)) {
    }
  });
  const Result<std::string> first = channel_->call(kMethod, "", Deadline::after(kGenerous));
  ASSERT_TRUE(first) << first.error().to_string();
  std::this_thread::sleep_for(milliseconds(20));
  const auto begin = Clock::now();
  expect_next_call_works();
  EXPECT_LT(Clock::now() - begin, kSoon);
}

TEST_F(ControlChannelAgainst, TwoMessagesForOneCallAreRefused) {
  against([](FakePeer& peer) {
    const std::uint32_t stream = peer.read_request();
    peer.send(http2::answer_start(stream) + http2::answer_data(stream, "one") +
              http2::answer_data(stream, "two") + http2::answer_end(stream));
    FakeGrpcServer::answering("fresh")(peer);
  });
  EXPECT_EQ(failure(kGenerous).reason, Reason::Corrupt);
  expect_next_call_works();
}

TEST_F(ControlChannelAgainst, AConnectionInOrderIsKept) {
  server_ = std::make_unique<FakeGrpcServer>(
      std::vector<Scene>{FakeGrpcServer::answering("fresh")});  // a second one would fail
  channel_ = std::make_unique<ControlChannel>(server_->path());
  for (int i = 0; i < 3; ++i) expect_next_call_works();
}

TEST(NodeControl, RefusesAnAnswerThatIsNoMessageOfTheProtocol) {
  FakeGrpcServer server({FakeGrpcServer::answering("\x0a\xff")});  // a field longer than the answer
  NodeControl control(server.path());
  const Result<Described> described =
      control.describe(SessionKey{}, MemberId{}, Deadline::after(kGenerous));
  ASSERT_FALSE(described);
  EXPECT_EQ(described.error().reason, Reason::Corrupt);
}

TEST(NodeControl, RefusesAnAttachmentWithoutASession) {
  FakeGrpcServer server({FakeGrpcServer::answering("")});
  NodeControl control(server.path());
  const Result<Attached> attached = control.attach("", "test", Deadline::after(kGenerous));
  ASSERT_FALSE(attached);
  EXPECT_EQ(attached.error().reason, Reason::Corrupt);
}

}  // namespace
}  // namespace arcomm::client
