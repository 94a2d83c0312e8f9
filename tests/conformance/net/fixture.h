// Two hosts, a connection between them, and receivers that keep what arrives.
#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <cstring>
#include <functional>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "tests/conformance/net/kinds.h"

namespace arcomm::net {

inline std::vector<std::byte> random_bytes(std::size_t size, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<std::byte> bytes(size);
  for (auto& byte : bytes) byte = static_cast<std::byte>(random());
  return bytes;
}

inline HelloKey key_of(std::uint8_t secret, std::uint32_t stream = 0) {
  HelloKey key{.key = {}, .stream = stream, .rail = 0};
  key.key.fill(static_cast<std::byte>(secret));
  return key;
}

// What b shows to who comes with the right key.
inline Secret answer() {
  Secret answer{};
  answer.fill(std::byte{9});
  return answer;
}

class KeepingReceiver final : public Receiver {
 public:
  struct Arrival {
    FrameHeader header;
    std::vector<std::byte> payload;
  };

  Result<std::byte*> place(const FrameHeader& header) override {
    ++asked;
    if (refusal) return *refusal;
    if (!has_room) return nullptr;
    landing.assign(header.length + 1, std::byte{0xcd});
    ++placed;
    return landing.data();
  }
  Status arrived(const FrameHeader& header, std::span<const std::byte> payload) override {
    EXPECT_EQ(payload.data(), landing.data());
    EXPECT_EQ(landing.back(), std::byte{0xcd}) << "written past the end";
    arrivals.push_back({header, {payload.begin(), payload.end()}});
    return {};
  }
  void abandoned(const FrameHeader&) override { ++given_back; }

  bool has_room = true;
  std::optional<Error> refusal;
  std::vector<Arrival> arrivals;
  std::vector<std::byte> landing;
  std::size_t asked = 0, placed = 0, given_back = 0;
};

class NetTest : public testing::TestWithParam<NetKind> {
 protected:
  static constexpr std::uint8_t kSecret = 7;

  struct Side {
    std::unique_ptr<Endpoint> endpoint;
    KeepingReceiver receiver;
    ConnectionPtr connection;

    Progress progress() { return connection ? connection->progress(receiver) : Progress::Again; }
  };

  void SetUp() override {
    net_ = GetParam().create();
    if (const std::string missing = net_->missing(); !missing.empty()) GTEST_SKIP() << missing;
    open(a_, 0, {});
    open(b_, 1, {});
  }
  void open(Side& side, int host, EndpointOptions options) {
    auto endpoint = net_->open(host, options);
    ASSERT_TRUE(endpoint.ok()) << endpoint.error().to_string();
    side.endpoint = *std::move(endpoint);
  }

  void begin(std::uint8_t secret = kSecret) { begin_at(b_.endpoint->address(), secret); }
  void begin_at(const Address& address, std::uint8_t secret = kSecret) {
    auto connection = a_.endpoint->connect(address, "node-b", key_of(secret), answer_);
    ASSERT_TRUE(connection.ok()) << connection.error().to_string();
    a_.connection = *std::move(connection);
    set_copies(*a_.connection);
  }
  static void set_copies(Connection& connection) {
    const bool wanted = GetParam().sends_without_copies;
    EXPECT_EQ(connection.send_without_copies(wanted), wanted);
  }
  void connect() {
    begin();
    stand();
  }
  void stand() {
    ASSERT_TRUE(until([this] {
      return b_.connection && a_.connection->is_open() == Progress::Done;
    })) << a_.connection->error().to_string();
  }

  // Whether it came true, both sides going on meanwhile.
  bool until(const std::function<bool()>& holds) {
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(10);
    while (!holds()) {
      if (std::chrono::steady_clock::now() > end) return false;
      if (!b_.connection && accepts_) {
        b_.connection = b_.endpoint->accept(check_key());
        if (b_.connection) set_copies(*b_.connection);
      }
      a_.progress();
      b_.progress();
      net_->step();
    }
    return true;
  }
  bool until_failed(const Side& side) {
    return until([&] { return side.connection->is_open() == Progress::Failed; });
  }

  static CheckKey check_key() {
    return [](const HelloKey& key) -> Result<Guest> {
      if (key.key == key_of(kSecret).key) return Guest{.peer = "node-a", .answer = answer()};
      return error(ErrorCode::Unauthenticated, Reason::Permission, "an unknown key");
    };
  }

  Transfer post(Side& side, const Frame& frame) {
    Transfer transfer = 0;
    EXPECT_TRUE(until([&] { return side.connection->post(frame, transfer) != Progress::Again; }));
    return transfer;
  }

  std::unique_ptr<NetUnderTest> net_;
  Side a_, b_;
  Secret answer_ = answer();  // that a expects
  bool accepts_ = true;
};

}  // namespace arcomm::net
