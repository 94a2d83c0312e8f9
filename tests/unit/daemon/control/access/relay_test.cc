// Bytes between a client and the server behind the relay, and clients that send what they should
// not, or do not read, or stop in the middle.
#include "daemon/control/access/relay.h"

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <functional>
#include <future>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "tests/support/sessions/descriptor_message.h"
#include "tests/support/sessions/lingering_socket.h"
#include "tests/unit/daemon/control/access/http2_bytes.h"

namespace arcomm::test {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using std::chrono::steady_clock;
using support::LingeringSocket;

constexpr uid_t kClientUid = 1000;

class RelayTest : public ::testing::Test {
 protected:
  void SetUp() override {
    loop_ = EventLoop::create().value();
    make_relay({});
    thread_ = std::thread([this] { loop_->run(); });
  }
  void TearDown() override {
    loop_->post([this] { relay_.reset(); });
    loop_->stop();
    thread_.join();
  }
  void make_relay(RelayedConnection::Deadlines deadlines) {
    relay_ = std::make_unique<Relay>(
        Relay::Parts{.loop = *loop_,
                     .closer = closer_,
                     .adopt_rpc = [this](UniqueFd fd) { server_ = std::move(fd); },
                     .ended =
                         [this](const Caller&, const Error& why) {
                           ++ended_;
                           why_ = why.message;
                         },
                     .deadlines = deadlines});
  }
  void use_deadlines(RelayedConnection::Deadlines deadlines) {
    ASSERT_TRUE(on_loop([&] { make_relay(deadlines); }));
  }
  // Whether the loop comes to it in time.
  bool on_loop(std::function<void()> task, milliseconds limit = milliseconds(1000)) {
    auto done = std::make_shared<std::promise<void>>();
    auto future = done->get_future();
    loop_->post([task = std::move(task), done] {
      task();
      done->set_value();
    });
    return future.wait_for(limit) == std::future_status::ready;
  }
  template <typename Condition>
  bool eventually(Condition condition, milliseconds limit = milliseconds(3000)) {
    const auto until = steady_clock::now() + limit;
    for (bool held = false; steady_clock::now() < until;) {
      if (!on_loop([&] { held = condition(); })) return false;
      if (held) return true;
      std::this_thread::sleep_for(milliseconds(1));
    }
    return false;
  }
  UniqueFd connect() {
    int ends[2];
    EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
    UniqueFd client(ends[0]);
    const timeval limit{.tv_sec = 5, .tv_usec = 0};
    ::setsockopt(client.get(), SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
    const Caller caller{.connection = ++connections_,
                        .kind = SocketKind::Client,
                        .peer = {7, kClientUid, kClientUid}};
    EXPECT_TRUE(on_loop([&] { EXPECT_TRUE(relay_->adopt(UniqueFd(ends[1]), caller)); }));
    return client;
  }
  // The server's end, which it gets when the client has greeted.
  UniqueFd greet(const UniqueFd& client) {
    EXPECT_TRUE(send(client, greeting()));
    EXPECT_TRUE(eventually([&] { return server_.get() >= 0; }));
    UniqueFd server;
    EXPECT_TRUE(on_loop([&] { server = std::move(server_); }));
    EXPECT_EQ(receive(server, greeting().size()), greeting());
    return server;
  }
  static bool send(const UniqueFd& to, const std::string& bytes) {
    return ::send(to.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL) ==
           static_cast<ssize_t>(bytes.size());
  }
  // As much as fits: the far end does not read.
  static std::string stuff(const UniqueFd& to, const std::function<std::string()>& piece) {
    std::string sent;
    for (int idle = 0; idle < 20;) {
      const std::string bytes = piece();
      const ssize_t took =
          ::send(to.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
      if (took > 0) {
        idle = 0;
        sent.append(bytes, 0, static_cast<std::size_t>(took));
        if (static_cast<std::size_t>(took) < bytes.size()) return sent;  // it would tear a frame
      } else {
        ++idle;
        std::this_thread::sleep_for(milliseconds(5));
      }
    }
    return sent;
  }
  // Fewer: the end came, or nothing for a while.
  static std::string receive(const UniqueFd& from, std::size_t bytes) {
    std::string got;
    while (got.size() < bytes) {
      pollfd waiting{from.get(), POLLIN, 0};
      if (::poll(&waiting, 1, 5000) != 1) break;
      char piece[65536];
      const ssize_t came =
          ::recv(from.get(), piece, std::min(sizeof(piece), bytes - got.size()), MSG_DONTWAIT);
      if (came <= 0) break;
      got.append(piece, static_cast<std::size_t>(came));
    }
    return got;
  }
  static bool is_at_end(const UniqueFd& from) {
    pollfd waiting{from.get(), POLLIN, 0};
    char byte = 0;
    return ::poll(&waiting, 1, 5000) == 1 && ::recv(from.get(), &byte, 1, MSG_DONTWAIT) <= 0;
  }

  std::unique_ptr<EventLoop> loop_;
  FdCloser closer_;
  std::unique_ptr<Relay> relay_;
  std::thread thread_;
  UniqueFd server_;
  ConnectionNumber connections_ = 0;
  int ended_ = 0;
  std::string why_;  // of the last one
};

TEST_F(RelayTest, PassesBytesBothWaysAndKnowsWhoseTheyAre) {
  const UniqueFd client = connect();
  const UniqueFd server = greet(client);
  EXPECT_TRUE(send(client, frame(1, "question")));
  EXPECT_EQ(receive(server, frame(1, "question").size()), frame(1, "question"));
  EXPECT_TRUE(send(server, "answer"));
  EXPECT_EQ(receive(client, 6), "answer");
  std::optional<Caller> caller;
  const std::string name = "fd:" + std::to_string(server.get());
  ASSERT_TRUE(on_loop([&] { caller = relay_->find(name); }));
  ASSERT_TRUE(caller.has_value());
  EXPECT_EQ(caller->peer.pid, 7);
  ASSERT_TRUE(on_loop([&] { caller = relay_->find("fd:1"); }));
  EXPECT_FALSE(caller.has_value());
}

TEST_F(RelayTest, TellsEachSideWhenTheOtherHangsUp) {
  UniqueFd client = connect();
  const UniqueFd server = greet(client);
  EXPECT_TRUE(send(client, frame(0, "last")));
  client.reset();
  EXPECT_EQ(receive(server, frame(0, "last").size()), frame(0, "last"));
  EXPECT_TRUE(is_at_end(server));
  EXPECT_TRUE(eventually([&] { return ended_ == 1 && relay_->size() == 0; }));

  const UniqueFd other = connect();
  UniqueFd leaving = greet(other);
  leaving.reset();
  EXPECT_TRUE(is_at_end(other));
  EXPECT_TRUE(eventually([&] { return ended_ == 2; }));
}

// What reads such a socket closes what is in it, and the last close blocks for 20 s.
TEST_F(RelayTest, ADescriptorEndsTheConnectionAndHoldsUpNobody) {
  const UniqueFd bystander = connect();
  const UniqueFd server_of_bystander = greet(bystander);
  for (int i = 0; i < 6; ++i) {
    const UniqueFd client = connect();
    const UniqueFd server = greet(client);
    LingeringSocket stuck;
    EXPECT_TRUE(send(client, frame(1, "before")));
    ASSERT_TRUE(support::send_descriptor(client.get(), stuck.end.get()));
    stuck.end.reset();
    EXPECT_TRUE(eventually([&] { return ended_ == i + 1; })) << "the loop is held up";
    EXPECT_TRUE(is_at_end(client));
    stuck.deaf.release();  // stays stuck
  }
  EXPECT_TRUE(send(bystander, frame(1, "question")));
  EXPECT_EQ(receive(server_of_bystander, frame(1, "question").size()), frame(1, "question"));
}

// The kernel drops such a byte, with what it holds, from under a read of what comes behind it.
TEST_F(RelayTest, NorDoesOneThatIsSentOutOfBand) {
  for (const bool something_behind : {false, true}) {
    UniqueFd client = connect();
    const UniqueFd server = greet(client);
    LingeringSocket stuck;
    std::promise<void> held;
    std::promise<void> sent;
    loop_->post([&held, seen = sent.get_future().share()] {
      held.set_value();
      seen.wait();
    });
    ASSERT_EQ(held.get_future().wait_for(seconds(5)), std::future_status::ready);
    char byte = '\0';
    iovec part{.iov_base = &byte, .iov_len = 1};
    alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
    msghdr header{};
    header.msg_iov = &part;
    header.msg_iovlen = 1;
    header.msg_control = control;
    header.msg_controllen = sizeof(control);
    cmsghdr* rights = CMSG_FIRSTHDR(&header);
    rights->cmsg_level = SOL_SOCKET;
    rights->cmsg_type = SCM_RIGHTS;
    rights->cmsg_len = CMSG_LEN(sizeof(int));
    const int end = stuck.end.get();
    std::memcpy(CMSG_DATA(rights), &end, sizeof(end));
    const bool known = ::sendmsg(client.get(), &header, MSG_OOB | MSG_NOSIGNAL) == 1;
    if (known && something_behind) {
      EXPECT_TRUE(send(client, frame(0, "behind")));
    }
    stuck.end.reset();
    sent.set_value();
    if (!known) GTEST_SKIP() << "this kernel has no out-of-band bytes of unix sockets";
    EXPECT_TRUE(on_loop([] {}));
    EXPECT_TRUE(is_at_end(client));
    EXPECT_TRUE(on_loop([] {})) << "the loop is held up";
    stuck.deaf.release();
  }
}

TEST_F(RelayTest, TheServerHearsOfNobodyWhoDoesNotSpeakHttp2) {
  const UniqueFd client = connect();
  EXPECT_TRUE(send(client, "GET / HTTP/1.1\r\n\r\n"));
  EXPECT_TRUE(is_at_end(client));
  EXPECT_TRUE(on_loop([&] {
    EXPECT_FALSE(server_);
    EXPECT_EQ(ended_, 1);
  }));
}

TEST_F(RelayTest, WhoDoesNotGreetIsClosedAfterAWhile) {
  use_deadlines({.greeting = milliseconds(100)});
  const UniqueFd silent = connect();
  const UniqueFd slow = connect();
  EXPECT_TRUE(send(slow, greeting().substr(0, 30)));
  EXPECT_TRUE(is_at_end(silent));
  EXPECT_TRUE(is_at_end(slow));
  EXPECT_TRUE(eventually([&] { return ended_ == 2; }));
}

TEST_F(RelayTest, WhoStopsInsideOfAFrameIsClosedAndWhoIsIdleIsNot) {
  use_deadlines({.frame = milliseconds(200)});
  const UniqueFd idle = connect();
  const UniqueFd server = greet(idle);
  const UniqueFd client = connect();
  const UniqueFd other_server = greet(client);
  const auto begun = steady_clock::now();
  // A byte now and then does not help: the frame has to end.
  const std::string bytes = frame(0, std::string(1000, 'x'));
  for (const char byte : bytes) {
    if (!send(client, std::string(1, byte))) break;
    std::this_thread::sleep_for(milliseconds(5));
  }
  EXPECT_LT(steady_clock::now() - begun, seconds(3));
  EXPECT_TRUE(eventually([&] { return ended_ == 1; }));
  EXPECT_TRUE(send(idle, frame(0, "")));
  EXPECT_EQ(receive(server, frame(0, "").size()), frame(0, ""));
}

TEST_F(RelayTest, KeepsNoMoreThanAPieceForAServerThatDoesNotRead) {
  const UniqueFd client = connect();
  const UniqueFd server = greet(client);
  int number = 0;
  const std::string sent =
      stuff(client, [&] { return frame(0, std::to_string(++number) + std::string(1000, 'x')); });
  EXPECT_GT(sent.size(), 100'000u);
  EXPECT_LT(sent.size(), 4'000'000u) << "somebody keeps what nobody reads";
  EXPECT_EQ(receive(server, sent.size()), sent);
  EXPECT_TRUE(on_loop([&] { EXPECT_EQ(ended_, 0); }));
}

TEST_F(RelayTest, KeepsNoMoreThanAPieceForAClientThatDoesNotRead) {
  const UniqueFd client = connect();
  const UniqueFd server = greet(client);
  int number = 0;
  const std::string sent =
      stuff(server, [&] { return std::to_string(++number) + std::string(1000, 'y'); });
  EXPECT_GT(sent.size(), 100'000u);
  EXPECT_LT(sent.size(), 4'000'000u);
  EXPECT_TRUE(send(client, frame(0, "still heard")));
  EXPECT_EQ(receive(server, frame(0, "still heard").size()), frame(0, "still heard"));
  EXPECT_EQ(receive(client, sent.size()), sent);
}

TEST_F(RelayTest, AClientThatReadsLateGetsTheLastWordsOfAServerThatHasGone) {
  const UniqueFd client = connect();
  UniqueFd server = greet(client);
  const std::string sent = stuff(server, [&] { return std::string(1000, 'z'); });
  server.reset();
  std::this_thread::sleep_for(milliseconds(50));
  EXPECT_TRUE(on_loop([&] { EXPECT_EQ(ended_, 0); }));
  EXPECT_EQ(receive(client, sent.size()), sent);
  EXPECT_TRUE(is_at_end(client));
  EXPECT_TRUE(eventually([&] { return ended_ == 1; }));
}

TEST_F(RelayTest, WhoDoesNotReadForTooLongIsClosed) {
  use_deadlines({.reading = milliseconds(200)});
  const UniqueFd client = connect();
  const UniqueFd server = greet(client);
  stuff(server, [&] { return std::string(1000, 'z'); });
  EXPECT_TRUE(eventually([&] { return ended_ == 1; }));
  EXPECT_FALSE(send(server, "more")) << "the server is told";
}

TEST_F(RelayTest, ItsEndLetsOutWhatTheServerHasWritten) {
  const UniqueFd client = connect();
  const UniqueFd server = greet(client);
  // In one turn of the loop, so that nothing is passed on before.
  EXPECT_TRUE(on_loop([&] {
    EXPECT_TRUE(send(server, "goodbye"));
    relay_->close();
  }));
  EXPECT_EQ(receive(client, 7), "goodbye");
  EXPECT_TRUE(is_at_end(client));
}

// A thousand at once: more than a connection may.
TEST_F(RelayTest, WhoBeginsCallsToResetThemIsToldToGoAway) {
  const UniqueFd client = connect();
  const UniqueFd server = greet(client);
  EXPECT_TRUE(send(server, frame(4, "")));
  EXPECT_EQ(receive(client, frame(4, "").size()), frame(4, ""));
  std::string storm;
  for (std::uint32_t stream = 1; stream < 2'000; stream += 2)
    storm += call_of(stream, "/a/b") + reset_of(stream);
  (void)send(client, storm);
  EXPECT_TRUE(eventually([&] { return ended_ == 1; }));
  EXPECT_NE(why_.find("calls that were reset"), std::string::npos) << why_;
  const std::string goodbye = receive(client, 4096);
  ASSERT_GE(goodbye.size(), 17u);
  EXPECT_EQ(goodbye[3], '\7');    // GOAWAY
  EXPECT_EQ(goodbye[16], '\13');  // ENHANCE_YOUR_CALM
  EXPECT_NE(goodbye.find(why_), std::string::npos);
}

// As it does where a client makes it, by frames that fit no state of the call.
TEST_F(RelayTest, ResetsOfTheServerCountAsWell) {
  const UniqueFd client = connect();
  const UniqueFd server = greet(client);
  std::string storm;
  for (std::uint32_t stream = 1; stream < 2'000; stream += 2) storm += reset_of(stream);
  (void)send(server, storm);
  EXPECT_TRUE(eventually([&] { return ended_ == 1; }));
  EXPECT_NE(why_.find("calls that were reset"), std::string::npos) << why_;
}

TEST_F(RelayTest, NobodyIsToldToGoAwayInTheMiddleOfAFrame) {
  const UniqueFd client = connect();
  const UniqueFd server = greet(client);
  const std::string half = frame(0, std::string(100, 'x')).substr(0, 50);
  EXPECT_TRUE(send(server, half));
  EXPECT_EQ(receive(client, half.size()), half);
  std::string storm;
  for (int i = 0; i < 10'000; ++i) storm += frame(4, "");
  (void)send(client, storm);
  EXPECT_TRUE(eventually([&] { return ended_ == 1; }));
  EXPECT_NE(why_.find("frames that belong to no call"), std::string::npos) << why_;
  EXPECT_TRUE(is_at_end(client));
}

}  // namespace
}  // namespace arcomm::test
