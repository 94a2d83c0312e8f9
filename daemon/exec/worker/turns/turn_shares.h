// How much of one turn each session gets, and when a turn ends early for somebody who calls: a
// flood makes no turn long, and with many sessions each gets less of it.
// Thread: the worker's. Ownership: none; the set outlives it.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "daemon/exec/worker/session_set.h"

namespace arcomm {

class TurnShares {
 public:
  explicit TurnShares(const SessionSet& sessions) : sessions_(sessions) {}

  // Before `count` sessions are read.
  void begin(std::size_t count) {
    reading_yields_ = flooded_ = false;
    if (count == 0) return;
    look_every_ = kFew + static_cast<int>(count / kSessionsPerStep);
    most_of_session_ = std::clamp(static_cast<int>(kMostOfAll / count), kFew, kMostAtOnce);
  }
  // May one more be read of the session that so many were taken of?
  bool reads_on(int taken) { return goes_on(taken, most_of_session_, reading_yields_); }
  // Nothing was left of it; what it called is to start soon.
  void emptied(Session& session, int taken) {
    session.low_backlog = taken <= kFew;
    if (session.low_backlog && taken != 0) reading_yields_ = true;
  }
  // The turn went on to the next one.
  void left(Session& session, int taken, bool has_more) {
    flooded_ = flooded_ || has_more;
    session.low_backlog = !has_more && taken <= kFew;
  }

  // Before what may run is started: that may be in the middle of reading, where a plan goes, and
  // says nothing about what is read on.
  void begin_starts() { starts_yield_ = false; }
  bool starts_on(int started) {
    return flooded_ ? goes_on(started, kMostAtOnce, starts_yield_) : started < kMostAtOnce;
  }

  bool flooded() const { return flooded_; }  // somebody's requests are left for the next turn

 private:
  static constexpr int kMostAtOnce = 32;  // requests of one session, and starts, in one turn
  static constexpr int kFew = 2;          // of them
  // Requests in one turn: with many sessions each gets fewer, since whoever calls waits for a turn.
  static constexpr std::size_t kMostOfAll = 256;
  // The more there are, the longer a look at all their rings takes.
  static constexpr std::size_t kSessionsPerStep = 4;

  // Not once somebody calls whom it would keep waiting. Beside a tenant with a million operations a
  // second, turns of 32 made the few of another take five times as long; turns that are always
  // short cost the busy one a fifth of its throughput.
  bool goes_on(int done, int most, bool& yields) {
    if (done == 0 || done % look_every_ != 0) return done < most;
    yields = yields || somebody_calls();
    return !yields && done < most;
  }
  // A session with a backlog does not cut the turn short.
  bool somebody_calls() const {
    return std::ranges::any_of(sessions_.all(), [](Session* session) {
      return session->low_backlog && session->readable() && session->peek() != ring::Pop::Empty;
    });
  }

  const SessionSet& sessions_;
  int most_of_session_ = kMostAtOnce;  // requests in this turn
  int look_every_ = kFew;              // requests or starts, for who else calls
  bool reading_yields_ = false, starts_yield_ = false, flooded_ = false;
};

}  // namespace arcomm
