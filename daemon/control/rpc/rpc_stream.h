// A call that answers with a stream of messages. What is sent while a write is under way waits in a
// queue. Thread: send() and finish() on any.
#pragma once

#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>

#include "daemon/control/rpc/rpc_call.h"

namespace arcomm {

// What a handler holds of its stream. The handler must call finish() exactly once, last.
template <typename Reply>
struct RpcStream {
  std::function<void(Reply)> send;
  std::function<void(Status)> finish;
  std::function<bool()> cancelled;  // the reader is gone
};

template <typename Request, typename Reply>
using StreamHandler = std::function<void(const Caller&, const Request&, RpcStream<Reply>)>;

template <typename Request, typename Reply>
class StreamCall final
    : public MatchedCall<StreamCall<Request, Reply>, Request, grpc::ServerAsyncWriter<Reply>,
                         StreamHandler<Request, Reply>> {
 public:
  using Base = MatchedCall<StreamCall, Request, grpc::ServerAsyncWriter<Reply>,
                           StreamHandler<Request, Reply>>;
  using Base::Base;

  void run(const Caller& caller) {
    auto self = this->shared_from_this();
    this->method_.handle(
        caller, this->request_,
        RpcStream<Reply>{.send = [self](Reply reply) { self->send(std::move(reply)); },
                         .finish = [self](const Status& status) { self->finish(status); },
                         .cancelled = [self] { return self->cancelled(); }});
  }

  void send(Reply reply) {
    std::lock_guard lock(mutex_);
    if (outcome_) return;
    waiting_.push_back(std::move(reply));
    pump();
  }

  void finish(const Status& status) {
    if (this->answered_.exchange(true)) return;
    this->count(status);
    std::lock_guard lock(mutex_);
    outcome_ = status;
    pump();
  }

  void written(bool ok) {
    std::lock_guard lock(mutex_);
    writing_ = false;
    if (!ok) waiting_.clear();  // the reader is gone
    pump();
  }
  void finished(bool) {}

 private:
  void pump() {
    if (writing_ || ended_stream_) return;
    std::unique_lock floor(this->floor_.mutex);
    if (this->floor_.closed) {
      waiting_.clear();
      if (!outcome_) return;
      ended_stream_ = true;
      floor.unlock();
      return this->last_event();  // no Finished will come
    }
    if (!waiting_.empty()) {
      writing_ = true;
      current_ = std::move(waiting_.front());
      waiting_.pop_front();
      this->writer_.Write(current_, &this->written_);
    } else if (outcome_) {
      ended_stream_ = true;
      this->writer_.Finish(
          *outcome_ ? grpc::Status::OK : to_grpc(outcome_->error(), this->context_),
          &this->finished_);
    }
  }

  std::mutex mutex_;  // before floor_.mutex
  std::deque<Reply> waiting_;
  Reply current_;
  std::optional<Status> outcome_;
  bool writing_ = false, ended_stream_ = false;
};

}  // namespace arcomm
