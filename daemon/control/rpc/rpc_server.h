// The gRPC server: both services, over connections that the gate accepted. It listens nowhere
// itself. Thread: adopt() on any; start and stop on the daemon's main thread. Two
// threads serve the completion queue; they only translate: handlers run on the control loop.
#pragma once

#include <memory>

#include "daemon/control/calls/node_admin.h"
#include "daemon/control/node_control.h"
#include "daemon/control/rpc/rpc_engine.h"
#include "daemon/control/rpc/rpc_stream.h"
#include "proto/arcommd/v1/control.grpc.pb.h"
#include "proto/unique_fd.h"

namespace arcomm {

class RpcServer {
 public:
  struct Parts {
    EventLoop& loop;
    Metrics& metrics;
    NodeControl& control;
    NodeAdmin& admin;
    FairShare::Limits calls;  // of users, that wait for their answers
    std::function<std::optional<Caller>(const std::string& grpc_peer)> find_caller;
  };
  static Result<std::unique_ptr<RpcServer>> start(Parts parts);
  ~RpcServer() { stop(); }

  // A non-blocking stream socket that the gate admitted.
  void adopt(UniqueFd connection);
  void use_call_limits(FairShare::Limits limits);  // for new ones; any thread
  FairShare calls() const;                         // any thread
  void stop();                                     // as RpcEngine's

 private:
  explicit RpcServer(Parts parts) : parts_(std::move(parts)) {}
  void listen();
  template <typename Request, typename Reply, typename Listen>
  void add(const char* name, bool admin, Listen listen, Handle<Request, Reply> handle,
           TakeBack<Request, Reply> take_back = {},
           std::function<void(std::uint64_t call)> cancelled = {});

  Parts parts_;
  v1::NodeControl::AsyncService control_service_;
  v1::NodeAdmin::AsyncService admin_service_;
  std::unique_ptr<RpcEngine> engine_;
};

}  // namespace arcomm
