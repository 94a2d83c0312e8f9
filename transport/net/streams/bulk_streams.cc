#include "transport/net/streams/bulk_streams.h"

#include <algorithm>
#include <utility>

namespace arcomm::net {

BulkStreams::~BulkStreams() {
  streams_.clear();
  give_back_queued();
}

Status BulkStreams::add(ConnectionPtr connection, StreamOptions options) {
  auto stream = StreamThread::start(std::move(connection), queue_, receiver_, *this, options);
  if (!stream) return std::move(stream).error();
  streams_.push_back(*std::move(stream));
  return {};
}

Progress BulkStreams::post(const Frame& frame, OnLoan& on_loan) {
  if (has_failed_.load(std::memory_order_acquire)) return Progress::Failed;
  if (!queue_.push({.frame = frame, .on_loan = &on_loan})) return Progress::Again;
  std::atomic_thread_fence(std::memory_order_seq_cst);  // as StreamThread::wake() wants
  // One is woken; a stream that is awake takes the frame without being told. In turns, so that no
  // stream is the only one to carry the load.
  for (std::size_t i = 0; i < streams_.size(); ++i) {
    next_woken_ = (next_woken_ + 1) % streams_.size();
    if (streams_[next_woken_]->wake()) break;
  }
  // A stream that failed in between has looked at the queue before this frame was there.
  std::atomic_thread_fence(std::memory_order_seq_cst);
  if (has_failed_.load(std::memory_order_seq_cst)) give_back_queued();
  return Progress::Done;
}

bool BulkStreams::is_awake() const {
  return std::ranges::any_of(streams_, [](const auto& stream) { return stream->is_awake(); });
}

std::optional<Error> BulkStreams::failure() const {
  const std::scoped_lock lock(failing_);
  return failure_;
}

std::vector<StreamCounters> BulkStreams::counters() const {
  std::vector<StreamCounters> all;
  for (const auto& stream : streams_) all.push_back(stream->counters());
  return all;
}

void BulkStreams::stream_ended(const Error& why) {
  {
    const std::scoped_lock lock(failing_);
    if (!failure_) failure_ = why;
  }
  has_failed_.store(true, std::memory_order_seq_cst);
  std::atomic_thread_fence(std::memory_order_seq_cst);
  give_back_queued();
  if (on_news_) on_news_();
}

void BulkStreams::give_back_queued() {
  BulkFrame left;
  while (queue_.pop(left)) left.on_loan->fetch_sub(1, std::memory_order_release);
}

}  // namespace arcomm::net
