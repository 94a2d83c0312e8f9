// Offers of descriptors to a daemon that is slow.
#include "client/src/control/fd_channel.h"

#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <filesystem>
#include <memory>
#include <string>
#include <thread>

namespace arcomm::client {
namespace {

using std::chrono::milliseconds;

class FdChannelTest : public testing::Test {
 protected:
  void SetUp() override {
    char name[] = "/tmp/arcomm-fds-XXXXXX";
    ASSERT_NE(::mkdtemp(name), nullptr);
    folder_ = name;
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    (folder_ + "/fd.sock").copy(address.sun_path, sizeof(address.sun_path) - 1);
    listener_ = UniqueFd(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
    ASSERT_EQ(::bind(listener_.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
    ASSERT_EQ(::listen(listener_.get(), 1), 0);
  }
  void TearDown() override {
    channel_.reset();
    daemon_ = {};
    std::filesystem::remove_all(folder_);
  }
  // Whose daemon takes `delay` for every answer but the one to Hello.
  void open(milliseconds delay) {
    daemon_ = std::jthread([this, delay] {
      const UniqueFd peer(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
      FdMessage message;
      while (::recv(peer.get(), &message, sizeof(message), 0) == sizeof(message)) {
        if (message.kind == FdMessageKind::Offer) {
          ++offers_;
          std::this_thread::sleep_for(delay);
        }
        message = {};
        message.kind = FdMessageKind::Answer;
        message.ticket = 7;
        if (::send(peer.get(), &message, sizeof(message), MSG_NOSIGNAL) < 0) break;
      }
    });
    auto channel = FdChannel::open(folder_ + "/fd.sock", {}, Deadline::after(milliseconds(5000)));
    ASSERT_TRUE(channel.ok()) << channel.error().to_string();
    channel_ = std::move(*channel);
  }
  Result<std::uint64_t> offer(milliseconds within) {
    return channel_->offer(memory_.get(), Deadline::after(within));
  }

  const UniqueFd memory_{::memfd_create("offered", MFD_CLOEXEC)};
  std::string folder_;
  UniqueFd listener_;
  std::atomic<int> offers_ = 0;
  std::unique_ptr<FdChannel> channel_;
  std::jthread daemon_;
};

TEST_F(FdChannelTest, AnOfferWhoseTimeIsOverIsNotSentAndEndsNothing) {
  open(milliseconds(0));
  const Result<std::uint64_t> late = offer(milliseconds(0));
  ASSERT_FALSE(late.ok());
  EXPECT_EQ(late.error().code, ErrorCode::DeadlineExceeded);
  EXPECT_NE(late.error().message.find("arcMemRegister"), std::string::npos);
  EXPECT_EQ(offers_, 0);
  const Result<std::uint64_t> next = offer(milliseconds(5000));
  EXPECT_TRUE(next.ok()) << next.error().to_string();
}

TEST_F(FdChannelTest, AnOfferMayBeAnsweredALittleAfterTheDeadline) {
  open(milliseconds(15));
  EXPECT_TRUE(offer(milliseconds(10)).ok());
  EXPECT_FALSE(channel_->hung_up());
}

}  // namespace
}  // namespace arcomm::client
