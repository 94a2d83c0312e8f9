// How fast the way to another daemon is: two daemons measure it over connections of its own, which
// carry nothing else. One leads: it asks for echoes of small messages, then both send to each other
// for a while; the other one follows. Bounded in time and bytes, whatever the peer does.
// Thread: the caller's, which it keeps busy; stop() from any.
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "proto/status.h"
#include "transport/net/connection.h"
#include "transport/net/streams/bulk_streams.h"
#include "transport/net/streams/stream_thread.h"

namespace arcomm {

struct LinkSpeed {
  std::chrono::nanoseconds latency{0};  // of a small message, one way: half of the median echo
  std::uint64_t bytes_per_second = 0;   // of the slower direction, while both are used
  // Of the echoes, and of either direction.
  std::chrono::nanoseconds round_trip{0}, round_trip_p99{0};
  std::uint64_t sent_per_second = 0, received_per_second = 0;
};

class LinkMeter {
 public:
  using Clock = std::chrono::steady_clock;
  struct Options {
    Clock::time_point deadline;  // no wait is longer
    bool without_copies = false;
    std::chrono::nanoseconds spin{0};  // of the streams' threads
    std::chrono::milliseconds echoes{150}, flood{300};
    std::uint64_t most_bytes = std::uint64_t{4} << 30;  // each way
  };

  // Open connections, the first for messages and one at least for bulk.
  LinkMeter(std::vector<net::ConnectionPtr> connections, Options options);
  ~LinkMeter();
  LinkMeter(const LinkMeter&) = delete;
  LinkMeter& operator=(const LinkMeter&) = delete;

  Result<LinkSpeed> lead();
  Status follow();  // until the leader has what it wants
  void stop() { stops_.store(true, std::memory_order_relaxed); }
  // Ends the streams' threads, which takes a tenth of a second.
  void close() { streams_.reset(); }

 private:
  struct Note;
  class Notes;
  class Flood;

  Status open_streams();
  Status say(const Note& note);
  Result<Note> hear();
  Result<Note> hear(std::uint32_t kind);
  Status check_time() const;
  Status measure_echoes(LinkSpeed& speed);
  // Sends, and waits until what the peer sent is here; what came, and the seconds it took.
  Result<Note> flood();

  net::ConnectionPtr messages_;
  std::vector<net::ConnectionPtr> bulk_;  // until open_streams()
  const Options options_;
  std::unique_ptr<Notes> notes_;
  std::unique_ptr<Flood> flood_;
  std::unique_ptr<net::BulkStreams> streams_;  // after what it calls
  bool is_flooded_ = false;  // what the streams do no longer matters: the peer may close its own
  std::atomic<bool> stops_{false};
};

}  // namespace arcomm
