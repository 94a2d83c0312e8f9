#include "daemon/control/rpc/rpc_engine.h"

#include <grpcpp/server_posix.h>
#include <pthread.h>

#include <chrono>

namespace arcomm {
namespace {

constexpr std::chrono::milliseconds kFarewell{500};

}  // namespace

Result<std::unique_ptr<RpcEngine>> RpcEngine::start(grpc::ServerBuilder& builder, EventLoop& loop,
                                                    Metrics& metrics, FindCaller find_caller) {
  std::unique_ptr<RpcEngine> self(new RpcEngine());
  self->queue_ = builder.AddCompletionQueue();
  self->server_ = builder.BuildAndStart();
  if (self->server_ == nullptr)
    return error(ErrorCode::Internal, Reason::None, "gRPC did not start its server");
  self->floor_ = std::make_unique<RpcFloor>(loop, metrics, *self->queue_, std::move(find_caller));
  return self;
}

void RpcEngine::adopt(UniqueFd connection) {
  std::lock_guard lock(adopting_);
  if (server_) grpc::AddInsecureChannelFromFd(server_.get(), connection.release());
}

void RpcEngine::serve(int threads, const char* name) {
  for (int i = 0; i < threads; ++i) {
    threads_.emplace_back([this, name] {
      ::pthread_setname_np(::pthread_self(), name);
      serve_queue();
    });
  }
}

void RpcEngine::serve_queue() {
  void* tag = nullptr;
  bool ok = false;
  while (queue_->Next(&tag, &ok)) {
    const auto* event = static_cast<RpcCall::Tag*>(tag);
    event->call->step(event->event, ok);
  }
}

void RpcEngine::stop() {
  std::unique_ptr<grpc::Server> server;
  {
    std::lock_guard lock(adopting_);
    server = std::move(server_);
  }
  if (!server) return;
  std::vector<std::shared_ptr<RpcCall>> pending;
  {
    std::lock_guard lock(floor_->mutex);
    floor_->stopping = true;
    pending.assign(floor_->calls.begin(), floor_->calls.end());
  }
  for (const auto& call : pending) call->refuse(shutting_down());
  pending.clear();
  server->Shutdown(std::chrono::system_clock::now() + kFarewell);
  {
    std::lock_guard lock(floor_->mutex);
    floor_->closed = true;
  }
  queue_->Shutdown();
  for (std::thread& thread : threads_) thread.join();
  threads_.clear();
  {
    // A handler that answers only now lets go of its call, too.
    std::lock_guard lock(floor_->mutex);
    pending.assign(floor_->calls.begin(), floor_->calls.end());
    floor_->calls.clear();
  }
  pending.clear();
}

}  // namespace arcomm
