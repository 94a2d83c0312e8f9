// All bulk streams to one peer. A frame that is posted goes over whichever stream is free first, so
// that a slow rail gets less and nothing waits behind it; frames arrive in no order.
// Thread: one posts; the receiver is called by the streams' threads, several at once. When one
// stream fails nothing more is posted, and the set is to be taken down: the frames that the stream
// held may or may not have arrived, and only the owner of the operation knows what to do about
// that.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include "transport/net/receiver.h"
#include "transport/net/streams/bulk_queue.h"
#include "transport/net/streams/stream_thread.h"

namespace arcomm::net {

class BulkStreams final : private StreamThread::Owner {
 public:
  // on_news: called on the streams' threads when bytes have come, payloads were given back, or a
  // stream has failed: for waking what sleeps until then.
  explicit BulkStreams(Receiver& receiver, std::function<void()> on_news = nullptr)
      : receiver_(receiver), on_news_(std::move(on_news)) {}
  // Ends the threads. Every payload is the poster's again afterwards.
  ~BulkStreams() override;
  BulkStreams(const BulkStreams&) = delete;
  BulkStreams& operator=(const BulkStreams&) = delete;

  // One more stream over an open connection.
  Status add(ConnectionPtr connection, StreamOptions options);

  // Done: taken, and `on_loan`, counted up by the caller before, is counted down when the payload
  // has left. Again: the queue is full. Failed: failure() says why; nothing was taken.
  Progress post(const Frame& frame, OnLoan& on_loan);

  // A thread would take a frame now without being woken for it.
  bool is_awake() const;
  bool has_failed() const { return has_failed_.load(std::memory_order_acquire); }
  std::optional<Error> failure() const;
  std::vector<StreamCounters> counters() const;
  std::size_t size() const { return streams_.size(); }

 private:
  void stream_moved() override {
    if (on_news_) on_news_();
  }
  void stream_ended(const Error& why) override;
  void give_back_queued();

  Receiver& receiver_;
  const std::function<void()> on_news_;
  BulkQueue queue_;
  std::atomic<bool> has_failed_{false};
  mutable std::mutex failing_;
  std::optional<Error> failure_;
  std::vector<std::unique_ptr<StreamThread>> streams_;
  std::size_t next_woken_ = 0;
};

}  // namespace arcomm::net
