// The two rings of a session, and the requests that are between them: each has an entry, which the
// ring's ticket names by index and generation, from the moment that it leaves until its completion
// is taken.
// Thread: any for control(); all else under the mutex of the session's Submission.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "client/src/host/member.h"
#include "client/src/host/operation.h"
#include "proto/ring/doorbell.h"
#include "proto/ring/segment.h"
#include "proto/unique_fd.h"

namespace arcomm::client {

class SessionRings {
 public:
  struct InFlight {
    Operation* operation = nullptr;  // null: the entry is free
    Member* member = nullptr;
    std::uint64_t segment = 0;
  };
  // most_in_flight 0: as many as the ring has slots, which is the most in any case.
  SessionRings(ring::Segment segment, UniqueFd doorbell, std::uint32_t most_in_flight);

  ring::ControlLines& control() const { return segment_.control(); }
  std::uint32_t most_in_flight() const { return most_in_flight_; }
  bool is_full() const { return free_.empty(); }

  // Of the next request to be sent. Precondition: !is_full(). Apart from send(), because a word
  // that is stored right before the request is copied makes the copy wait: 8 ns.
  std::uint64_t next_ticket() const {
    const std::uint32_t index = free_.back();
    const std::uint32_t generation = entries_[index].generation + 1;
    return (std::uint64_t{generation == 0 ? 1 : generation} << 32) | index;
  }
  // Puts the request, which has that ticket, into the ring and wakes the daemon. It is in flight
  // when Done.
  ring::Push send(const ring::WorkRequest& request, const InFlight& what);

  // The same for a request that is no operation's: it has no entry, and nobody counts it.
  ring::Push send_aside(const ring::WorkRequest& request);
  // What the daemon takes in the ring: proto/ring/layout.h.
  std::uint64_t features() const { return segment_.features(); }

  bool has_completion() { return completions_.peek() != ring::Pop::Empty; }
  ring::Pop receive(ring::Completion& completion) { return completions_.pop(completion); }
  // False for the ticket of a request that is not in flight (any more).
  bool is_in_flight(std::uint64_t ticket) const {
    const auto index = static_cast<std::uint32_t>(ticket);
    return index < most_in_flight_ && entries_[index].what.operation != nullptr &&
           entries_[index].generation == static_cast<std::uint32_t>(ticket >> 32);
  }
  // The request is in flight no longer. Precondition: it was.
  InFlight take(std::uint64_t ticket) { return take_entry(static_cast<std::uint32_t>(ticket)); }
  // The same for all that are, one after another, when no answer will come.
  void take_each(const std::function<void(const InFlight&)>& taken);

 private:
  struct Entry {
    InFlight what;
    std::uint32_t generation = 0;
  };
  InFlight take_entry(std::uint32_t index) {
    Entry& entry = entries_[index];
    const InFlight taken = entry.what;
    entry.what.operation = nullptr;
    free_.push_back(index);
    --taken.member->in_flight;
    --taken.operation->outstanding;
    return taken;
  }

  ring::Segment segment_;
  UniqueFd doorbell_fd_;
  ring::EventDoorbell doorbell_;
  const std::uint32_t most_in_flight_;
  ring::Producer<ring::WorkRequest> requests_;
  ring::Consumer<ring::Completion> completions_;
  std::vector<Entry> entries_;
  std::vector<std::uint32_t> free_;
};

}  // namespace arcomm::client
