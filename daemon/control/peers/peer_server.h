// The gRPC server of PeerService, and of nothing else. Without TLS it listens nowhere itself: the
// gate hands it what it relays; with TLS it does, since what is encrypted cannot be looked at on
// its way, and whoever has no certificate of the authority does not get past the handshake.
// Thread: adopt() on any; start and stop on the daemon's main thread.
#pragma once

#include <memory>
#include <string>

#include "daemon/control/peers/peer_calls.h"
#include "daemon/control/peers/peer_client.h"
#include "daemon/control/rpc/rpc_engine.h"
#include "proto/unique_fd.h"

namespace arcomm {

class PeerServer {
 public:
  struct Parts {
    EventLoop& loop;
    Metrics& metrics;
    PeerCalls& calls;
    RpcEngine::FindCaller find_caller;  // without TLS
    PeerTls tls = {};
    std::string listen = {};  // with TLS
  };
  static Result<std::unique_ptr<PeerServer>> start(Parts parts);

  void adopt(UniqueFd connection);
  void stop() { engine_->stop(); }

 private:
  explicit PeerServer(Parts parts) : parts_(std::move(parts)) {}
  void listen();

  Parts parts_;
  v1::PeerService::AsyncService service_;
  std::unique_ptr<RpcEngine> engine_;
};

}  // namespace arcomm
