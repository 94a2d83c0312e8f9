// Calls to other daemons' PeerService, each answered on the control loop. One thread takes what
// gRPC has finished and posts it. Names are looked up by gRPC, on threads of its own.
// Thread: the control loop; the destructor after it has stopped.
#pragma once

#include <grpcpp/grpcpp.h>

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <unordered_set>
#include <utility>

#include "daemon/control/rpc/event_loop.h"
#include "proto/arcommd/v1/peer.grpc.pb.h"
#include "proto/status.h"

namespace arcomm {

namespace v1 = arcommd::v1;

// PEM, all three or none.
struct PeerTls {
  std::string certificate, key, authority;
  bool is_on() const { return !authority.empty(); }
};

class PeerClient {
 public:
  using Clock = EventLoop::Clock;
  using Stub = v1::PeerService::Stub;

  PeerClient(EventLoop& loop, PeerTls tls);
  ~PeerClient();

 private:
  struct Call {
    virtual ~Call() = default;
    virtual void finish() = 0;  // on the loop
    grpc::ClientContext context;
    grpc::Status status;
  };
  using Calls = std::unordered_set<std::shared_ptr<Call>>;

 public:
  // The way to one daemon. Those that are under way when it goes are cancelled, and answered.
  class Line {
   public:
    Line(PeerClient& client, std::string address);
    ~Line();
    const std::string& address() const { return address_; }

    // done: once, on the loop, later. What the way to the peer has done is Unavailable/NotRunning
    // or DeadlineExceeded/Timeout; all else the peer's own answer.
    template <typename Request, typename Reply>
    void call(std::unique_ptr<grpc::ClientAsyncResponseReader<Reply>> (Stub::*method)(
                  grpc::ClientContext*, const Request&, grpc::CompletionQueue*),
              const Request& request, Clock::time_point deadline,
              std::function<void(Result<Reply>)> done) {
      struct Typed final : Call {
        void finish() override {
          if (status.ok()) return done(std::move(reply));
          done(error_of(status, context));
        }
        Reply reply;
        std::unique_ptr<grpc::ClientAsyncResponseReader<Reply>> reader;
        std::function<void(Result<Reply>)> done;
      };
      auto call = std::make_shared<Typed>();
      call->done = std::move(done);
      begin(*call, deadline);
      calls_->insert(call);
      call->reader = (stub_.get()->*method)(&call->context, request, &client_.queue_);
      call->reader->StartCall();
      // Its way back: off the set of those under way, then to whom it was for.
      auto* tag = new Tag([&loop = client_.loop_, call, calls = calls_] {
        loop.post([call, calls] {
          calls->erase(call);
          call->finish();
        });
      });
      call->reader->Finish(&call->reply, &call->status, tag);
    }

   private:
    static void begin(Call& call, Clock::time_point deadline);

    PeerClient& client_;
    const std::string address_;
    std::unique_ptr<Stub> stub_;
    std::shared_ptr<Calls> calls_ = std::make_shared<Calls>();
  };

 private:
  using Tag = std::function<void()>;
  static Error error_of(const grpc::Status& status, const grpc::ClientContext& context);
  void serve_queue();

  EventLoop& loop_;
  std::shared_ptr<grpc::ChannelCredentials> credentials_;
  grpc::CompletionQueue queue_;
  std::thread thread_;
};

}  // namespace arcomm
