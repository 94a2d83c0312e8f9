// What one uid sent and cannot be closed is felt by that uid alone: not by the others, and not by
// the control loop.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/un.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <functional>
#include <future>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "daemon/control/access/connection_gate.h"
#include "daemon/control/descriptors/fd_channel.h"
#include "daemon/telemetry/metrics/metrics.h"
#include "tests/support/sessions/descriptor_message.h"
#include "tests/support/sessions/lingering_socket.h"

namespace arcomm::test {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using support::LingeringSocket;

constexpr uid_t kSender = 1000, kBystander = 1001;

class StuckClose : public ::testing::Test {
 protected:
  void SetUp() override {
    loop_ = EventLoop::create().value();
    channel_ =
        std::make_unique<FdChannel>(FdChannel::Parts{.loop = *loop_,
                                                     .ledger = ledger_,
                                                     .ended = [](SessionId, const std::string&) {},
                                                     .released = [](uid_t) {}});
  }
  void TearDown() override {
    loop_->stop();
    if (thread_.joinable()) thread_.join();
    gate_.reset();
    channel_.reset();
    if (!folder_.empty()) std::filesystem::remove_all(folder_);
  }
  void run() {
    thread_ = std::thread([this] { loop_->run(); });
  }
  // Whether the loop comes to it in time.
  bool on_loop(std::function<void()> task) {
    auto done = std::make_shared<std::promise<void>>();
    auto future = done->get_future();
    loop_->post([task = std::move(task), done] {
      task();
      done->set_value();
    });
    return future.wait_for(seconds(3)) == std::future_status::ready;
  }

  // The client's end of a connection of that uid.
  UniqueFd connect_as(uid_t uid) {
    int ends[2];
    EXPECT_EQ(::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends), 0);
    UniqueFd client(ends[0]);
    const timeval limit{.tv_sec = 3, .tv_usec = 0};
    ::setsockopt(client.get(), SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
    const Caller caller{
        .connection = ++connections_, .kind = SocketKind::Descriptor, .peer = {0, uid, uid}};
    EXPECT_TRUE(on_loop([&] { channel_->adopt(UniqueFd(ends[1]), caller); }));
    return client;
  }
  // False: the daemon closed the connection, or says nothing.
  static bool is_answered(const UniqueFd& client) {
    FdMessage answer;
    return ::recv(client.get(), &answer, sizeof(answer), 0) == sizeof(answer);
  }
  static bool asks(const UniqueFd& client) {
    FdMessage message;
    message.kind = FdMessageKind::Fetch;
    return ::send(client.get(), &message, sizeof(message), MSG_NOSIGNAL) == sizeof(message) &&
           is_answered(client);
  }

  // While the loop looks away, so that the close here is not the last.
  void leave(const UniqueFd& client, LingeringSocket& stuck) {
    std::promise<void> looks_away, sent;
    loop_->post([&looks_away, seen = sent.get_future().share()] {
      looks_away.set_value();
      seen.wait();
    });
    looks_away.get_future().wait();
    EXPECT_TRUE(support::send_descriptor(client.get(), stuck.end.get()));
    stuck.end.reset();
    sent.set_value();
  }

  // A connection that waits to be accepted by a gate that admits so many of a uid.
  UniqueFd connect_to_gate(SocketKind kind, std::uint64_t connections_per_uid,
                           std::function<void(UniqueFd)> adopt_rpc) {
    char name[] = "/tmp/arcomm-stuck-XXXXXX";
    EXPECT_NE(::mkdtemp(name), nullptr);
    folder_ = name;
    std::vector<std::string> warnings;
    std::vector<ListeningSocket> sockets;
    sockets.push_back(std::move(make_socket(kind, folder_, {}, warnings)).value());
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::memcpy(address.sun_path, sockets[0].path().c_str(), sockets[0].path().size() + 1);
    gate_ = std::make_unique<ConnectionGate>(
        ConnectionGate::Parts{.loop = *loop_,
                              .metrics = metrics_,
                              .closer = channel_->closer(),
                              .groups = {},
                              .connections = {.node = 10, .per_uid = connections_per_uid},
                              .adopt_rpc = std::move(adopt_rpc),
                              .adopt_descriptors = [](UniqueFd, Caller) {},
                              .hung_up = [this](ConnectionNumber) { ++hung_up_; }});
    EXPECT_TRUE(gate_->open(std::move(sockets)));
    const int type = kind == SocketKind::Descriptor ? SOCK_SEQPACKET : SOCK_STREAM;
    UniqueFd client(::socket(AF_UNIX, type | SOCK_CLOEXEC, 0));
    EXPECT_EQ(::connect(client.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
    return client;
  }

  Metrics metrics_;
  SessionLedger ledger_;
  std::unique_ptr<EventLoop> loop_;
  std::unique_ptr<FdChannel> channel_;
  std::unique_ptr<ConnectionGate> gate_;
  std::thread thread_;
  std::string folder_;
  ConnectionNumber connections_ = 0;
  int hung_up_ = 0;
};

TEST_F(StuckClose, RefusesTheUidThatLeftItAndServesTheOthers) {
  run();
  const UniqueFd other = connect_as(kBystander);
  const UniqueFd idle = connect_as(kSender);
  const UniqueFd stranger = connect_as(kSender);
  LingeringSocket stuck;
  leave(stranger, stuck);
  ASSERT_TRUE(is_answered(stranger));
  const UniqueFd file(::open("/dev/null", O_RDWR | O_CLOEXEC));
  for (std::size_t i = 1; i < FdCloser::kMostWaiting; ++i) {
    ASSERT_TRUE(support::send_descriptor(stranger.get(), file.get()) && is_answered(stranger)) << i;
  }
  EXPECT_FALSE(asks(stranger));
  EXPECT_FALSE(asks(idle));
  EXPECT_FALSE(asks(connect_as(kSender)));
  EXPECT_TRUE(asks(other)) << "it was there before";
  EXPECT_TRUE(asks(connect_as(kBystander))) << "it came afterwards";

  stuck.deaf.reset();  // the close returns now
  bool served = false;
  const auto until = std::chrono::steady_clock::now() + seconds(15);
  while (!served && std::chrono::steady_clock::now() < until) {
    served = asks(connect_as(kSender));
    if (!served) std::this_thread::sleep_for(milliseconds(10));
  }
  EXPECT_TRUE(served) << "the uid is served again when what it left is closed";
}

// Its session's memory may have been released meanwhile. A socket stands for gigabytes: its last
// close takes long, too.
TEST_F(StuckClose, ClosesWhatNobodyCouldFetchSomewhereElse) {
  run();
  const UniqueFd client = connect_as(kSender);
  const UniqueFd other = connect_as(kBystander);
  LingeringSocket stuck;
  FdMessage hello, fetch;
  ASSERT_TRUE(on_loop([&] {
    SessionEntry entry;
    entry.peer = {0, kSender, kSender};
    SessionEntry& session = **ledger_.open(std::move(entry));
    std::vector<UniqueFd> fds;
    fds.push_back(std::move(stuck.end));
    hello.kind = FdMessageKind::Hello;
    hello.session = session.id.bits();
    hello.token = session.token;
    fetch.kind = FdMessageKind::Fetch;
    fetch.ticket = ledger_.add_ticket(session, std::move(fds));
  }));
  ASSERT_EQ(::send(client.get(), &hello, sizeof(hello), MSG_NOSIGNAL), ssize_t{sizeof(hello)});
  ASSERT_TRUE(is_answered(client));
  ASSERT_EQ(::shutdown(client.get(), SHUT_RD), 0) << "so that it can be told nothing";
  ASSERT_EQ(::send(client.get(), &fetch, sizeof(fetch), MSG_NOSIGNAL), ssize_t{sizeof(fetch)});
  EXPECT_TRUE(asks(other)) << "the loop is held up";
  EXPECT_TRUE(on_loop([] {}));
  stuck.deaf.release();  // stays stuck
}

// The last close of a large one takes as long as touching it did.
TEST_F(StuckClose, ClosesRefusedMemoryInItsOwnersTurnAndNotOnTheLoop) {
  run();
  const UniqueFd stranger = connect_as(kSender);
  LingeringSocket stuck;
  leave(stranger, stuck);  // what else its uid leaves waits behind it
  ASSERT_TRUE(is_answered(stranger));
  const auto open_memory = [] {
    std::size_t count = 0;
    for (const auto& one : std::filesystem::directory_iterator("/proc/self/fd")) {
      std::error_code gone;
      count += std::filesystem::read_symlink(one, gone).string().starts_with("/memfd:refused");
    }
    return count;
  };
  const auto send_memory = [](const UniqueFd& to, const char* bytes, std::size_t length) {
    const UniqueFd memory(::memfd_create("refused", MFD_CLOEXEC | MFD_ALLOW_SEALING));
    return support::send_with_descriptor(to.get(), bytes, length, memory.get());
  };
  FdMessage offer;
  offer.kind = FdMessageKind::Offer;
  const auto* message = reinterpret_cast<const char*>(&offer);
  ASSERT_TRUE(send_memory(stranger, message, sizeof(offer)) && is_answered(stranger));
  EXPECT_EQ(open_memory(), 1u) << "of an Offer without a Hello";
  ASSERT_TRUE(send_memory(stranger, "no message", 10));
  EXPECT_FALSE(is_answered(stranger));
  EXPECT_EQ(open_memory(), 2u) << "of what is no message";
  const UniqueFd other = connect_as(kSender);
  const std::string long_one(sizeof(offer) + 1, 'x');
  ASSERT_TRUE(send_memory(other, long_one.data(), long_one.size()));
  EXPECT_FALSE(is_answered(other));
  EXPECT_EQ(open_memory(), 3u) << "of a message that is too long";
  stuck.deaf.reset();
  const auto until = std::chrono::steady_clock::now() + seconds(15);
  while (open_memory() != 0 && std::chrono::steady_clock::now() < until)
    std::this_thread::sleep_for(milliseconds(10));
  EXPECT_EQ(open_memory(), 0u);
}

TEST_F(StuckClose, KeepsNoConnectionOfThatUidOpen) {
  run();
  UniqueFd stranger = connect_as(kSender);
  LingeringSocket stuck;
  leave(stranger, stuck);
  ASSERT_TRUE(is_answered(stranger));
  const auto open_descriptors = [] {
    return std::distance(std::filesystem::directory_iterator("/proc/self/fd"), {});
  };
  const auto before = open_descriptors();
  for (int i = 0; i < 600; ++i) {
    const UniqueFd rude = connect_as(kSender);
    ASSERT_EQ(::send(rude.get(), "no message", 10, MSG_NOSIGNAL), 10);
    ASSERT_FALSE(is_answered(rude));
  }
  ASSERT_TRUE(on_loop([] {}));
  EXPECT_LT(open_descriptors(), before + 10);
}

TEST_F(StuckClose, TurnsAConnectionAwayWithoutWaitingForWhatItBrought) {
  const UniqueFd client = connect_to_gate(SocketKind::Descriptor, 0, [](UniqueFd) {});
  LingeringSocket stuck;
  ASSERT_TRUE(support::send_descriptor(client.get(), stuck.end.get()));
  stuck.end.reset();
  run();
  char byte = 0;
  EXPECT_LE(::recv(client.get(), &byte, 1, 0), 0);
  EXPECT_TRUE(on_loop([] {}));
  EXPECT_EQ(metrics_.connections_refused.value(), 1u);
}

TEST_F(StuckClose, StopsListeningWithoutWaitingForWhatNobodyAccepted) {
  const UniqueFd client = connect_to_gate(SocketKind::Descriptor, 10, [](UniqueFd) {});
  LingeringSocket stuck;
  ASSERT_TRUE(support::send_descriptor(client.get(), stuck.end.get()));
  stuck.end.reset();
  const auto since = std::chrono::steady_clock::now();
  gate_->close_listeners();
  EXPECT_LT(std::chrono::steady_clock::now() - since, seconds(3)) << "the loop would be held up";
  EXPECT_FALSE(std::filesystem::exists(folder_ + "/fd.sock"));
  stuck.deaf.release();  // stays stuck
}

TEST_F(StuckClose, ForgetsAnRpcConnectionWithoutWaitingForWhatNobodyRead) {
  // As a server that gives the connection up at once.
  UniqueFd client = connect_to_gate(SocketKind::Client, 10, [](UniqueFd fd) { fd.reset(); });
  LingeringSocket stuck;
  // From Linux 6.16 on the kernel turns descriptors away here, and nothing can be stuck.
  if (!support::send_descriptor(client.get(), stuck.end.get())) {
    ASSERT_EQ(errno, EPERM);
    stuck.deaf.reset();  // or this thread, which closes the last descriptor, would be stuck
  }
  stuck.end.reset();
  client.reset();
  run();
  const auto until = std::chrono::steady_clock::now() + seconds(10);
  int gone = 0;
  while (gone == 0 && std::chrono::steady_clock::now() < until) {
    ASSERT_TRUE(on_loop([&] { gone = hung_up_; }));
  }
  EXPECT_EQ(gone, 1);
  EXPECT_TRUE(on_loop([] {}));
}

}  // namespace
}  // namespace arcomm::test
