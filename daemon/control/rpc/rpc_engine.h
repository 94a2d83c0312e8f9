// What the gRPC servers of this daemon have in common: a completion queue with its threads, the
// calls that are under way, and an orderly end. The owner registers services, then methods.
// Thread: start and stop on the daemon's main thread, adopt() on any. The threads only translate:
// handlers run on the control loop.
#pragma once

#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "daemon/control/rpc/rpc_call.h"
#include "proto/unique_fd.h"

namespace arcomm {

class RpcEngine {
 public:
  using FindCaller = std::function<std::optional<Caller>(const std::string& grpc_peer)>;

  // The builder has its services, which outlive this, and its limits.
  static Result<std::unique_ptr<RpcEngine>> start(grpc::ServerBuilder& builder, EventLoop& loop,
                                                  Metrics& metrics, FindCaller find_caller);
  ~RpcEngine() { stop(); }

  RpcFloor& floor() { return *floor_; }
  // Serves a connection that was accepted elsewhere. Once stop() has begun it is closed instead.
  void adopt(UniqueFd connection);

  // All methods before serve().
  template <typename Call>
  void add(typename Call::Method method) {
    auto kept = std::make_shared<const typename Call::Method>(std::move(method));
    methods_.push_back(kept);
    Call::listen(*floor_, *kept);
  }
  void serve(int threads, const char* name);
  // Refuses what is pending with ShuttingDown, lets the answers out for at most half a second,
  // closes.
  void stop();

 private:
  RpcEngine() = default;
  void serve_queue();

  std::unique_ptr<grpc::ServerCompletionQueue> queue_;
  std::mutex adopting_;                   // guards the pointer below
  std::unique_ptr<grpc::Server> server_;  // null: it stops
  std::unique_ptr<RpcFloor> floor_;
  std::vector<std::shared_ptr<const void>> methods_;  // outlive every call
  std::vector<std::thread> threads_;
};

}  // namespace arcomm
