// Bulk streams to one peer without threads: whoever owns them drives them, for where cores are few
// and a thread would only take turns with its owner. As BulkStreams, frames arrive in no order, and
// when one stream fails the set is to be taken down.
// Thread: the owner's.
#pragma once

#include <cstddef>
#include <deque>
#include <optional>
#include <vector>

#include "transport/net/receiver.h"
#include "transport/net/streams/bulk_queue.h"
#include "transport/net/streams/stream_thread.h"

namespace arcomm::net {

class DrivenStreams {
 public:
  explicit DrivenStreams(Receiver& receiver) : receiver_(receiver) {}
  // Says goodbye, for up to a tenth of a second each; may be another thread's than the owner's.
  // Every payload is the poster's again afterwards.
  ~DrivenStreams();
  DrivenStreams(const DrivenStreams&) = delete;
  DrivenStreams& operator=(const DrivenStreams&) = delete;

  // One more stream over an open connection.
  void add(ConnectionPtr connection) { streams_.push_back({.connection = std::move(connection)}); }

  // As BulkStreams::post; it leaves with progress(), over the stream on which fewest wait to leave:
  // a slow one carries less. Those on which as many wait take turns.
  Progress post(const Frame& frame, OnLoan& on_loan);
  // Sends and receives what can be now, bounded. Whether anything moved, or a stream has failed.
  bool progress();

  bool has_failed() const { return failure_.has_value(); }
  const std::optional<Error>& failure() const { return failure_; }
  bool is_sending() const;
  // To sleep on, of each stream; -1: polling is all.
  std::vector<int> descriptors() const;
  std::vector<StreamCounters> counters() const;
  std::size_t size() const { return streams_.size(); }

 private:
  struct Held {
    Transfer transfer = 0;
    OnLoan* on_loan = nullptr;
  };
  struct Stream {
    ConnectionPtr connection;
    std::deque<Held> held = {};
  };

  static bool give_back_sent(Stream& stream);

  Receiver& receiver_;
  std::vector<Stream> streams_;
  std::size_t next_ = 0;  // whose turn it was to get a frame
  std::optional<Error> failure_;
};

}  // namespace arcomm::net
