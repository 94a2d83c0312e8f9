// One interface of this node, from which connections go out and on which they come in.
// Thread: one at a time, but for regions(), which any thread may use. Connections may outlive it,
// but those of a LoopbackNetwork not the network.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "proto/net/frame.h"
#include "proto/status.h"
#include "transport/net/addresses/address.h"
#include "transport/net/connection.h"
#include "transport/net/regions.h"

namespace arcomm::net {

struct EndpointOptions {
  Address address;  // port 0: any that is free
  // A connection that is not open after this long is given up, on both sides.
  std::chrono::milliseconds greeting_timeout{3000};
  // What was sent and is not acknowledged for this long is a dead peer.
  std::chrono::milliseconds peer_timeout{10000};
  // Of a connection, each way, between this process and the kernel; 0: as many as the kernel finds
  // good, which grow with what is on the way.
  std::size_t buffer_bytes = 0;
  // Connections from strangers that have not shown a key yet; more are turned away.
  std::size_t most_strangers = 64;
  // What the connections' puts and signals go into; the endpoints of a node share one, for a peer's
  // frames come over any of its interfaces. nullptr: the endpoint makes its own.
  std::shared_ptr<Regions> regions = {};
};

// The peer that has shown a good key.
struct Guest {
  std::string peer;  // its name, for people
  Secret answer{};   // what it expects to be shown in return
};
// Whether a key is one that the control plane handed out, and to whom. A key is good for one
// connection.
using CheckKey = std::function<Result<Guest>(const HelloKey&)>;

// The name() of a connection.
std::string connection_name(std::string_view peer, const Address& address, const HelloKey& key);
// Of a Welcome; Unauthenticated. Takes as long for any wrong answer as for another.
Status check_answer(std::span<const std::byte> given, const Secret& expected);

class Endpoint {
 public:
  virtual ~Endpoint() = default;
  Endpoint(const Endpoint&) = delete;
  Endpoint& operator=(const Endpoint&) = delete;

  virtual const Capabilities& capabilities() const = 0;
  // Where peers connect to: the port is the real one.
  virtual const Address& address() const = 0;
  virtual Regions& regions() = 0;  // of its options, or its own

  // Begins a connection; is_open() says when it stands. An error is one of this node's (no
  // descriptor, no such interface): what the peer does shows in the connection. Whoever answers
  // with anything but `answer` is not the peer, and gets no frame: Unauthenticated.
  virtual Result<ConnectionPtr> connect(const Address& peer, std::string_view peer_name,
                                        const HelloKey& key, const Secret& answer) = 0;
  // The next connection that has shown a good key, open; nullptr: none now. Also what turns away
  // strangers that are late or wrong, so call it regularly.
  virtual ConnectionPtr accept(const CheckKey& check_key) = 0;
  // Strangers that were turned away since the endpoint was made.
  virtual std::uint64_t refused() const = 0;

  // To sleep on until somebody connects; -1 where polling is all.
  virtual int descriptor() const = 0;

 protected:
  Endpoint() = default;
};

}  // namespace arcomm::net
