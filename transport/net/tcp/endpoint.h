// Connections over TCP, from and to one interface. See transport/net/endpoint.h.
#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <string_view>

#include "proto/unique_fd.h"
#include "transport/net/endpoint.h"
#include "transport/net/tcp/connection.h"

namespace arcomm::net {

class TcpEndpoint final : public Endpoint {
 public:
  static Result<std::unique_ptr<Endpoint>> open(EndpointOptions options);

  const Capabilities& capabilities() const override;
  const Address& address() const override { return options_.address; }
  Regions& regions() override { return *options_.regions; }
  Result<ConnectionPtr> connect(const Address& peer, std::string_view peer_name,
                                const HelloKey& key, const Secret& answer) override;
  ConnectionPtr accept(const CheckKey& check_key) override;
  std::uint64_t refused() const override { return refused_; }
  int descriptor() const override { return listener_.get(); }

 private:
  using Clock = std::chrono::steady_clock;
  // A connection of which nothing is known but its bytes, no more than a Hello of them.
  struct Stranger {
    UniqueFd socket;
    Clock::time_point admitted, greeted_by;
    std::size_t received = 0;
    std::array<std::byte, sizeof(FrameHeader) + sizeof(HelloKey)> hello{};
  };
  enum class Greeting : std::uint8_t { Waits, Complete, Wrong };

  TcpEndpoint(EndpointOptions options, UniqueFd listener);
  void admit_strangers();
  ConnectionPtr hear_strangers(const CheckKey& check_key);
  static Greeting listen_to(Stranger& stranger);
  TcpConnection::Options connection_options(std::string name) const;
  ConnectionPtr welcome(Stranger stranger, const CheckKey& check_key);

  EndpointOptions options_;
  UniqueFd listener_;
  std::deque<Stranger> strangers_;  // oldest first
  std::uint64_t refused_ = 0;
};

}  // namespace arcomm::net
