#include "transport/net/streams/driven_streams.h"

#include <algorithm>

#include "transport/net/goodbye.h"

namespace arcomm::net {

DrivenStreams::~DrivenStreams() {
  for (Stream& stream : streams_) {
    say_goodbye(*stream.connection, receiver_, "its streams are taken down");
    stream.connection->abandon(receiver_);
    // Its socket is closed: nobody reads the payloads any more.
    stream.connection.reset();
    for (const Held& held : stream.held) held.on_loan->fetch_sub(1, std::memory_order_release);
  }
}

Progress DrivenStreams::post(const Frame& frame, OnLoan& on_loan) {
  if (failure_) return Progress::Failed;
  if (streams_.empty()) return Progress::Again;
  next_ = (next_ + 1) % streams_.size();
  Stream* freest = &streams_[next_];
  for (std::size_t i = 1; i < streams_.size(); ++i) {
    Stream& other = streams_[(next_ + i) % streams_.size()];
    if (other.held.size() < freest->held.size()) freest = &other;
  }
  Held held{.on_loan = &on_loan};
  // Where it has no room, nobody has.
  if (freest->connection->post(frame, held.transfer) != Progress::Done) return Progress::Again;
  freest->held.push_back(held);
  return Progress::Done;
}

bool DrivenStreams::progress() {
  if (failure_) return false;
  bool moved = false;
  for (Stream& stream : streams_) {
    const Progress progress = stream.connection->progress(receiver_);
    if (progress == Progress::Failed || stream.connection->is_open() == Progress::Failed) {
      failure_ = stream.connection->error();
      return true;
    }
    moved |= give_back_sent(stream) || progress == Progress::Done;
  }
  return moved;
}

bool DrivenStreams::give_back_sent(Stream& stream) {
  bool moved = false;
  while (!stream.held.empty() &&
         stream.connection->test(stream.held.front().transfer) == Progress::Done) {
    stream.held.front().on_loan->fetch_sub(1, std::memory_order_release);
    stream.held.pop_front();
    moved = true;
  }
  return moved;
}

bool DrivenStreams::is_sending() const {
  return std::ranges::any_of(streams_, [](const Stream& stream) { return !stream.held.empty(); });
}

std::vector<int> DrivenStreams::descriptors() const {
  std::vector<int> all;
  for (const Stream& stream : streams_) all.push_back(stream.connection->descriptor());
  return all;
}

std::vector<StreamCounters> DrivenStreams::counters() const {
  std::vector<StreamCounters> all;
  for (const Stream& stream : streams_) {
    const LinkStatistics link = stream.connection->statistics();
    all.push_back({.name = std::string(stream.connection->name()),
                   .sent_bytes = link.sent_bytes,
                   .received_bytes = link.received_bytes,
                   .link = link});
  }
  return all;
}

}  // namespace arcomm::net
