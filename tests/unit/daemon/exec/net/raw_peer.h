// The test's own end of a link to a worker: it sends what it likes, and hears what comes.
// Thread: the test's.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <deque>
#include <initializer_list>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "tests/unit/daemon/exec/net/nodes_fixture.h"

namespace arcomm::test {

template <typename T>
std::span<const std::byte> bytes_of(const T& value) {
  return std::as_bytes(std::span(&value, 1));
}

class RawPeer final : private net::Receiver {
 public:
  void use(net::ConnectionPtr connection) { connection_ = std::move(connection); }
  void send(net::MessageKind kind, std::uint64_t communicator, std::uint64_t seq,
            std::initializer_list<std::span<const std::byte>> parts) {
    std::vector<std::byte> payload(sizeof(net::MessageHead));
    for (const auto& part : parts) payload.insert(payload.end(), part.begin(), part.end());
    const net::MessageHead head{
        .kind = kind,
        .bytes = static_cast<std::uint32_t>(payload.size() - sizeof(net::MessageHead))};
    std::memcpy(payload.data(), &head, sizeof head);
    send_bytes(communicator, seq, std::move(payload));
  }
  void send_bytes(std::uint64_t communicator, std::uint64_t seq, std::vector<std::byte> payload) {
    const auto end = std::chrono::steady_clock::now() + kPatience;
    net::Transfer transfer = 0;
    const net::FrameHeader names{.communicator = communicator, .epoch = epoch, .seq = seq};
    while (connection_->post({.header = names, .payload = payload}, transfer) ==
               net::Progress::Again &&
           std::chrono::steady_clock::now() < end)
      progress();
    sent_.push_back(std::move(payload));
    while (connection_->test(transfer) == net::Progress::Again &&
           std::chrono::steady_clock::now() < end)
      progress();
  }
  void offer(std::uint64_t communicator, std::uint64_t seq, std::size_t inline_bytes = 0,
             Rank first_rank = 1, std::uint32_t identity = 0, milliseconds remaining = {}) {
    net::OfferBody body = net::offer_of(all_reduce_of(5));
    body.total_count = 5;
    body.first_rank = first_rank;
    body.identity = identity;
    body.remaining_ns = static_cast<std::uint64_t>(
        std::chrono::duration_cast<std::chrono::nanoseconds>(remaining).count());
    body.inline_bytes = static_cast<std::uint32_t>(inline_bytes);
    const std::vector<std::byte> data(inline_bytes);
    send(net::MessageKind::Offer, communicator, seq, {bytes_of(body), data});
  }
  void fail(net::MessageKind kind, std::uint64_t communicator, std::uint64_t seq) {
    net::FailureBody body{.code = static_cast<std::int32_t>(ErrorCode::Aborted), .culprit = 1};
    send(kind, communicator, seq, {bytes_of(body)});
  }
  void progress() { connection_->progress(*this); }
  bool is_over() {
    progress();
    return connection_->is_open() == net::Progress::Failed;
  }
  std::string why() const { return connection_->error().message; }
  void cut() { connection_.reset(); }
  int heard(net::MessageKind kind) const {
    return static_cast<int>(std::count(heard_.begin(), heard_.end(), kind));
  }

  std::uint32_t epoch = 1;

 private:
  Result<std::byte*> place(const net::FrameHeader&) override { return room_.data(); }
  Status arrived(const net::FrameHeader&, std::span<const std::byte> payload) override {
    const auto message = net::read_message(payload);
    EXPECT_TRUE(message.ok());
    if (message) heard_.push_back(message->kind);
    return {};
  }
  void abandoned(const net::FrameHeader&) override {}

  net::ConnectionPtr connection_;
  std::vector<std::byte> room_ = std::vector<std::byte>(net::kMostMessageBytes);
  std::deque<std::vector<std::byte>> sent_;  // until the end: a frame may still be on its way
  std::vector<net::MessageKind> heard_;
};

}  // namespace arcomm::test
