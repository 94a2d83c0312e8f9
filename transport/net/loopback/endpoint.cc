#include "transport/net/loopback/endpoint.h"

#include <utility>

#include "transport/net/sealing.h"

namespace arcomm::net {

Result<std::unique_ptr<Endpoint>> LoopbackEndpoint::open(LoopbackNetwork& network,
                                                         EndpointOptions options) {
  std::unique_ptr<LoopbackEndpoint> made(new LoopbackEndpoint(network, std::move(options)));
  auto address = network.enter(*made, made->options_.address);
  if (!address) {
    made->options_.address.port =
        0;  // what is there is another's, and must not leave with this one
    return std::move(address).error();
  }
  made->options_.address = *std::move(address);
  return std::unique_ptr<Endpoint>(std::move(made));
}

LoopbackConnection::Options LoopbackEndpoint::connection_options(std::string_view peer,
                                                                 const Address& address,
                                                                 const HelloKey& key) const {
  return {.out = {},
          .in = {},
          .name = connection_name(peer, address, key),
          .greeted_by = network_.now() + options_.greeting_timeout,
          .peer_timeout = options_.peer_timeout};
}

Result<ConnectionPtr> LoopbackEndpoint::connect(const Address& peer, std::string_view peer_name,
                                                const HelloKey& key, const Secret& answer) {
  auto options = connection_options(peer_name, peer, key);
  options.answer = answer;
  LoopbackEndpoint* const other = network_.endpoint_at(peer);
  if (other == nullptr || network_.is_dead(peer.host))
    return ConnectionPtr(
        std::make_unique<LoopbackConnection>(network_, options_.regions, std::move(options.name),
                                             error(ErrorCode::Unavailable, Reason::RemoteDied,
                                                   "connecting: Connection refused (errno 111)")));
  options.out = std::make_shared<LoopbackNetwork::Direction>();
  options.out->from = options_.address.host;
  options.out->to = peer.host;
  options.in = std::make_shared<LoopbackNetwork::Direction>();
  options.in->from = peer.host;
  options.in->to = options_.address.host;
  if (other->strangers_.size() >= other->options_.most_strangers) {
    other->strangers_.pop_front();
    ++other->refused_;
  }
  other->strangers_.push_back(
      {.out = options.in,
       .in = options.out,
       .key = key,
       .arrives = network_.now() + network_.draw_delay(options_.address.host, peer.host),
       .address = options_.address});
  return ConnectionPtr(
      std::make_unique<LoopbackConnection>(network_, options_.regions, std::move(options)));
}

ConnectionPtr LoopbackEndpoint::accept(const CheckKey& check_key) {
  for (std::size_t i = 0; i < strangers_.size();) {
    const auto& waiting = strangers_[i];
    if (waiting.arrives > network_.now() || network_.is_cut(waiting.in->from, waiting.in->to)) {
      ++i;
      continue;
    }
    const Stranger stranger = std::move(strangers_[i]);
    strangers_.erase(strangers_.begin() + static_cast<std::ptrdiff_t>(i));
    const auto guest = check_key(stranger.key);
    if (!guest) {
      FrameHeader goodbye{.kind = FrameKind::Goodbye};
      const auto words = std::as_bytes(std::span(guest.error().message));
      seal(goodbye, words);
      network_.send(*stranger.out, goodbye, words);
      stranger.out->is_over = true;
      ++refused_;
      continue;
    }
    auto options = connection_options(guest->peer, stranger.address, stranger.key);
    options.out = stranger.out;
    options.in = stranger.in;
    options.answer = guest->answer;
    options.is_welcomed = true;
    return std::make_unique<LoopbackConnection>(network_, options_.regions, std::move(options));
  }
  return nullptr;
}

}  // namespace arcomm::net
