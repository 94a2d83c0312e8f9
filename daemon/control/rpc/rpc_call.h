// One gRPC call on its way through the completion queue: matched, handled on the control loop,
// finished. A call that waits for its answer holds an object and no thread.
//
// Thread: step() on a completion-queue thread; answer() on any. A call owns itself from the match
// until both its last events (answer sent, call done) have come out of the queue.
#pragma once

#include <grpcpp/grpcpp.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_set>
#include <utility>

#include "daemon/control/access/caller.h"
#include "daemon/control/rpc/event_loop.h"
#include "daemon/control/rpc/request_limits.h"
#include "daemon/control/rpc/status_map.h"
#include "daemon/exec/clock.h"
#include "daemon/memory/fair_share.h"
#include "daemon/telemetry/log/log.h"
#include "daemon/telemetry/metrics/metrics.h"
#include "proto/status.h"

namespace arcomm {

class RpcCall {
 public:
  enum class Event : std::uint8_t { Matched, Written, Finished, Done };
  struct Tag {
    RpcCall* call = nullptr;
    Event event = Event::Matched;
  };

  virtual ~RpcCall() = default;
  virtual void step(Event event, bool ok) = 0;
  virtual void refuse(const Error& why) = 0;  // answers, unless answered
};

// What all calls of one server share.
struct RpcFloor {
  EventLoop& loop;
  Metrics& metrics;
  grpc::ServerCompletionQueue& queue;
  // On the loop: who is at the other end of gRPC's "fd:N"; nullopt when that connection is gone.
  std::function<std::optional<Caller>(const std::string& grpc_peer)> find_caller;

  bool counts = true;  // calls are counted, and those that fail are logged by pid and uid

  std::atomic<std::uint64_t> next_call{1};
  std::mutex mutex;  // guards what follows
  std::unordered_set<std::shared_ptr<RpcCall>> calls;
  FairShare users_calls;  // that are handled and not answered yet
  bool stopping = false;  // every call is refused
  bool closed = false;    // nothing may be put into the queue any more

  RpcFloor(EventLoop& control_loop, Metrics& counters,
           grpc::ServerCompletionQueue& completion_queue,
           std::function<std::optional<Caller>(const std::string&)> find)
      : loop(control_loop),
        metrics(counters),
        queue(completion_queue),
        find_caller(std::move(find)) {}
};

inline Error shutting_down() {
  return error(ErrorCode::Unavailable, Reason::ShuttingDown, "the daemon is shutting down");
}

// How one method is listened for and handled. `admin`: for callers on the admin socket only.
template <typename Request, typename Writer, typename Handler>
struct RpcMethod {
  const char* name;
  bool admin = false;
  std::function<void(grpc::ServerContext*, Request*, Writer*, grpc::ServerCompletionQueue*,
                     void* tag)>
      listen;
  Handler handle;                                     // on the loop
  std::function<void(std::uint64_t call)> cancelled;  // on the loop; may be empty
};

// What unary and streaming calls have in common: matching, checking the caller, and the end.
template <typename Self, typename Request, typename Writer, typename Handler>
class MatchedCall : public RpcCall, public std::enable_shared_from_this<Self> {
 public:
  using Method = RpcMethod<Request, Writer, Handler>;

  // Listens for the next call of `method`, which must outlive the server.
  static void listen(RpcFloor& floor, const Method& method) {
    auto call = std::make_shared<Self>(floor, method);
    std::lock_guard lock(floor.mutex);
    if (floor.closed) return;
    floor.calls.insert(call);
    call->context_.AsyncNotifyWhenDone(&call->done_);
    method.listen(&call->context_, &call->request_, &call->writer_, &floor.queue, &call->matched_);
  }

  MatchedCall(RpcFloor& floor, const Method& method)
      : floor_(floor), method_(method), number_(floor.next_call++), writer_(&context_) {}

  void step(Event event, bool ok) override {
    // Once it is matched, whoever stops the server may answer it, and its last events come out on
    // another thread while this one is still here.
    const auto stays = this->shared_from_this();
    switch (event) {
      case Event::Matched:
        if (!ok) return leave();  // the server closed; no Done follows
        matched_once_ = true;
        Self::listen(floor_, method_);
        if (const Status fits = check_request(request_); !fits)
          return static_cast<Self*>(this)->finish(fits.error());
        return dispatch();
      case Event::Written:
        return static_cast<Self*>(this)->written(ok);
      case Event::Finished:
        static_cast<Self*>(this)->finished(ok);
        return last_event();
      case Event::Done:
        if (context_.IsCancelled()) cancelled_ = true;
        if (context_.IsCancelled() && method_.cancelled) {
          floor_.loop.post(
              [self = this->shared_from_this()] { self->method_.cancelled(self->number_); });
        }
        return last_event();
    }
  }

  void refuse(const Error& why) override {
    if (matched_once_) static_cast<Self*>(this)->finish(why);
  }
  bool cancelled() const { return cancelled_; }

 protected:
  void dispatch() {
    bool stopping = false;
    {
      std::lock_guard lock(floor_.mutex);
      stopping = floor_.stopping;
    }
    auto self = this->shared_from_this();
    if (stopping || !floor_.loop.post([self] { self->handle(); })) self->finish(shutting_down());
  }

  void handle() {
    Self& self = static_cast<Self&>(*this);
    std::optional<Caller> caller = floor_.find_caller(context_.peer());
    if (!caller)
      return self.finish(error(ErrorCode::Unavailable, Reason::None, "the connection is gone"));
    pid_ = caller->peer.pid;
    uid_ = caller->peer.uid;
    if (method_.admin && caller->kind != SocketKind::Admin) {
      return self.finish(
          error(ErrorCode::PermissionDenied, Reason::Permission, method_.name,
                " is for operators: call it over admin.sock (group access.admin_group), not over ",
                "client.sock"));
    }
    if (const Status room = take_room(); !room) return self.finish(room.error());
    caller->call = number_;
    caller->waits_until_ns = waits_until_ns();
    self.run(*caller);
  }

  // What is held for its sake is answered a little before the caller stops waiting.
  std::uint64_t waits_until_ns() const {
    constexpr std::chrono::nanoseconds kBefore = std::chrono::milliseconds(50);
    const auto until = context_.deadline();
    if (until == std::chrono::system_clock::time_point::max()) return 0;
    const std::chrono::nanoseconds left = until - std::chrono::system_clock::now() - kBefore;
    return now_ns() + static_cast<std::uint64_t>(std::max<std::int64_t>(left.count(), 1));
  }

  // Among the calls that wait, each of which keeps its request. Operators' are not counted: whoever
  // is to look after a node that is short must be answered.
  Status take_room() {
    if (method_.admin) return {};
    const uid_t uid = uid_;
    std::lock_guard lock(floor_.mutex);
    FairShare& calls = floor_.users_calls;
    if (answered_) return {};  // refused meanwhile
    if (calls.ask(uid) != FairShare::Answer::Yes) {
      floor_.metrics.count_rejected(Reason::Quota);
      return error(
          ErrorCode::ResourceExhausted, Reason::Quota,
          "the node is short of calls: those of all users that wait for their answers are ",
          calls.total(), " of ", calls.limits().node, " (quota.node_calls), of which uid ", uid,
          " and its range have ", calls.of_tenant(uid),
          ", and one more would be above their fair share of it: try again");
    }
    calls.take(uid);
    has_room_ = true;
    floor_.metrics.node(NodeResource::Calls).used.add(1);
    return {};
  }
  void give_room_back() {  // under floor_.mutex
    if (!std::exchange(has_room_, false)) return;
    floor_.users_calls.give_back(uid_);
    floor_.metrics.node(NodeResource::Calls).used.add(-1);
  }

  void count(const Status& status) {
    if (!floor_.counts) return;
    floor_.metrics.control_calls[status ? ErrorCode::Ok : status.error().code].add();
    if (status) return;
    // By uid, not by connection: a client that loops on a failing call may connect anew each time.
    log::info_of(log::About::Calls, uid_, "{} of pid {}: {}", method_.name, pid_.load(),
                 status.error().to_string());
  }

  // The two last events may come in either order.
  void last_event() {
    if (ended_.fetch_add(1) == 1) leave();
  }
  void leave() {
    const auto self = this->shared_from_this();  // dies after the lock
    std::lock_guard lock(floor_.mutex);
    give_room_back();
    floor_.calls.erase(self);
  }

  RpcFloor& floor_;
  const Method& method_;
  const std::uint64_t number_;
  grpc::ServerContext context_;
  Request request_;
  Writer writer_;
  Tag matched_{this, Event::Matched}, written_{this, Event::Written},
      finished_{this, Event::Finished}, done_{this, Event::Done};
  std::atomic<bool> matched_once_{false}, answered_{false}, cancelled_{false};
  std::atomic<int> ended_{0};
  std::atomic<pid_t> pid_{0};  // 0: the caller is not known yet
  std::atomic<uid_t> uid_{static_cast<uid_t>(-1)};
  bool has_room_ = false;  // guarded by floor_.mutex
};

template <typename Request, typename Reply>
using Handle = std::function<void(const Caller&, const Request&, Answer<Reply>)>;
// Undoes what an answer gave that did not reach its caller; may be empty.
template <typename Request, typename Reply>
using TakeBack = std::function<void(const Caller&, const Request&, const Reply&)>;

template <typename Request, typename Reply>
struct UnaryHandler {  // on the loop
  Handle<Request, Reply> handle;
  TakeBack<Request, Reply> take_back;
};

template <typename Request, typename Reply>
class UnaryCall final
    : public MatchedCall<UnaryCall<Request, Reply>, Request, grpc::ServerAsyncResponseWriter<Reply>,
                         UnaryHandler<Request, Reply>> {
 public:
  using Base = MatchedCall<UnaryCall, Request, grpc::ServerAsyncResponseWriter<Reply>,
                           UnaryHandler<Request, Reply>>;
  using Base::Base;

  void run(const Caller& caller) {
    // Its end may have been told before it was begun.
    if (this->method_.cancelled && this->cancelled()) return finish(still_waited_for().error());
    caller_ = caller;
    this->method_.handle.handle(caller, this->request_,
                                [self = this->shared_from_this()](Result<Reply> result) {
                                  self->finish(std::move(result));
                                });
  }

  void finish(Result<Reply> result) {
    if (this->answered_.exchange(true)) return;
    if (result && this->method_.handle.take_back) {
      given_ = *result;
      if (const Status waited_for = still_waited_for(); !waited_for) {
        take_back();
        result = waited_for.error();  // for a caller who looks once more after its deadline
      }
    }
    this->count(result ? Status() : Status(result.error()));
    std::unique_lock lock(this->floor_.mutex);
    if (this->floor_.closed) {
      lock.unlock();
      return this->last_event();  // no Finished will come
    }
    if (result) {
      this->writer_.Finish(*result, grpc::Status::OK, &this->finished_);
    } else {
      this->writer_.FinishWithError(to_grpc(result.error(), this->context_), &this->finished_);
    }
  }

  void written(bool) {}
  // Not ok: the call had ended, and nothing of the answer has left or will.
  void finished(bool ok) {
    if (!ok && given_) take_back();
  }

 private:
  // What leaves in the last moments may come too late: the deadline here is the caller's, rounded
  // up, and the request was on its way. And gRPC itself sees only after a while that it has passed.
  static constexpr std::chrono::milliseconds kLastMoments{5};

  Status still_waited_for() const {
    const bool late = this->context_.deadline() <= std::chrono::system_clock::now() + kLastMoments;
    if (!late && !this->cancelled()) return {};
    return error(late ? ErrorCode::DeadlineExceeded : ErrorCode::Cancelled,
                 late ? Reason::Timeout : Reason::None,
                 "the caller had stopped waiting before it could be answered: nothing is kept "
                 "for it");
  }
  void take_back() {
    this->floor_.loop.post(
        [self = this->shared_from_this(), given = *std::exchange(given_, std::nullopt)] {
          self->method_.handle.take_back(*self->caller_, self->request_, given);
        });
  }

  std::optional<Caller> caller_;  // once handled
  std::optional<Reply> given_;    // until it has left
};

}  // namespace arcomm
