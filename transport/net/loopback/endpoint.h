// Connections over a LoopbackNetwork, from and to one host. See transport/net/endpoint.h.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <string_view>

#include "transport/net/endpoint.h"
#include "transport/net/loopback/connection.h"
#include "transport/net/loopback/network.h"

namespace arcomm::net {

class LoopbackEndpoint final : public Endpoint {
 public:
  static Result<std::unique_ptr<Endpoint>> open(LoopbackNetwork& network, EndpointOptions options);
  ~LoopbackEndpoint() override { network_.leave(options_.address); }

  const Capabilities& capabilities() const override {
    return LoopbackConnection::capabilities_of_all();
  }
  const Address& address() const override { return options_.address; }
  Regions& regions() override { return *options_.regions; }
  Result<ConnectionPtr> connect(const Address& peer, std::string_view peer_name,
                                const HelloKey& key, const Secret& answer) override;
  ConnectionPtr accept(const CheckKey& check_key) override;
  std::uint64_t refused() const override { return refused_; }
  int descriptor() const override { return -1; }

 private:
  struct Stranger {
    LoopbackConnection::Directions out, in;  // as this side sees them
    HelloKey key;
    LoopbackNetwork::Time arrives;
    Address address;
  };

  LoopbackEndpoint(LoopbackNetwork& network, EndpointOptions options)
      : network_(network), options_(std::move(options)) {
    if (!options_.regions) options_.regions = std::make_shared<Regions>();
  }
  LoopbackConnection::Options connection_options(std::string_view peer, const Address& address,
                                                 const HelloKey& key) const;

  LoopbackNetwork& network_;
  EndpointOptions options_;
  std::deque<Stranger> strangers_;
  std::uint64_t refused_ = 0;
};

}  // namespace arcomm::net
