#include "daemon/comm/communicator.h"

#include <cinttypes>

namespace arcomm {
namespace {

std::uint64_t ms(std::uint64_t from_ns, std::uint64_t to_ns) {
  return to_ns > from_ns ? (to_ns - from_ns) / 1'000'000 : 0;
}

}  // namespace

std::string diagnose(const Communicator& communicator, std::uint64_t now_ns) {
  const Arrival* oldest = nullptr;
  communicator.board.for_each([&oldest](const Arrival& arrival) {
    if (oldest == nullptr && arrival.state == Arrival::State::Gathering) oldest = &arrival;
  });
  if (oldest == nullptr) return "";
  std::string text;
  int missing = 0;
  for (const Seat& seat : communicator.seats) {
    if (oldest->has_seen(seat.index)) continue;
    if (missing++ != 0) text += ", ";
    text += "rank " + std::to_string(seat.rank) + " (pid " + std::to_string(seat.pid) +
            ", next seq " + std::to_string(seat.next_seq) + ")";
  }
  int waiting = 0;
  const std::string who = list_ranks(communicator, [&](const Seat& seat) {
    const bool waits = oldest->has_seen(seat.index);
    waiting += waits ? 1 : 0;
    return waits;
  });
  return text + (missing == 1 ? " has" : " have") + " not called; " + who +
         (waiting == 1 ? " waits" : " wait") + " at seq " + std::to_string(oldest->seq) +
         " since " + std::to_string(ms(oldest->first_ns, now_ns)) + " ms";
}

Failure describe_timeout(const Communicator& communicator, const Arrival& arrival,
                         std::uint64_t now_ns) {
  const std::uint64_t waited = ms(arrival.first_ns, now_ns);
  if (arrival.state == Arrival::State::Matched) {
    return make_failure(ErrorCode::DeadlineExceeded, Reason::Timeout, kNoRank,
                        "seq %" PRIu64 ": other nodes did not agree to it within %" PRIu64 " ms",
                        arrival.seq, waited);
  }
  if (arrival.state != Arrival::State::Gathering) {
    return make_failure(ErrorCode::DeadlineExceeded, Reason::Timeout, kNoRank,
                        "seq %" PRIu64 " was not finished after %" PRIu64
                        " ms: the device is overloaded",
                        arrival.seq, waited);
  }
  Rank first = kNoRank;
  int missing = 0;
  const std::string who = list_ranks(communicator, [&](const Seat& seat) {
    if (arrival.has_seen(seat.index)) return false;
    if (missing++ == 0) first = seat.rank;
    return true;
  });
  if (missing == 1) {
    return make_failure(ErrorCode::DeadlineExceeded, Reason::Timeout, first,
                        "rank %d (pid %d) did not call seq %" PRIu64 " within %" PRIu64 " ms",
                        first, static_cast<int>(communicator.seat(first).pid), arrival.seq, waited);
  }
  return make_failure(ErrorCode::DeadlineExceeded, Reason::Timeout, first,
                      "%s did not call seq %" PRIu64 " within %" PRIu64 " ms", who.c_str(),
                      arrival.seq, waited);
}

}  // namespace arcomm
