// Requests of control for which the GPUs must be quiesced, in their turn (quiesce_queue.h): what is
// asked for, what became of it, and those that are due, in one quiescing. On a device that needs
// none they run at once. Thread: the worker's.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <optional>
#include <utility>
#include <vector>

#include "daemon/exec/clock.h"
#include "daemon/exec/worker/quiesce/quiesce_queue.h"
#include "daemon/exec/worker/worker_state.h"
#include "proto/status.h"

namespace arcomm {

class QuiesceTurns {
 public:
  template <typename T>
  using Done = std::function<void(Result<T>)>;
  // How a request waits for its turn.
  struct Claim {
    std::vector<SessionId> who = {};  // at whose users' expense
    std::vector<uid_t> uids = {};     // and at these'
    std::uint64_t cost = 1;
    std::uint64_t deadline_ns = 0;
  };

  // `state` outlives it.
  explicit QuiesceTurns(WorkerState& state) : state_(state) {}

  // `act` gives a Result, of an optional where it may go on in another turn; `done` may be empty.
  template <typename T, typename Act>
  void act(const Done<T>& done, const Claim& claim, const Act& act) {
    const auto refuse = [done](Error why) {
      if (done) done(std::move(why));
    };
    if (!state_.backend->is_quiesced_for_changes()) {
      if (Try one = tried(done, act()); one.state == Try::State::HeldUp) refuse(std::move(one.why));
      return;
    }
    QuiesceQueue::Request request{.uids = claim.uids,
                                  .cost = claim.cost,
                                  .act = [done, act] { return tried(done, act()); },
                                  .refuse = refuse,
                                  .deadline_ns = claim.deadline_ns};
    for (const SessionId id : claim.who) {
      const Session* session = state_.sessions.find(id);
      if (session != nullptr) request.uids.push_back(session->origin().uid);
    }
    queue_.add(std::move(request), now_ns());
  }

  // Runs what is due. Whether there was something.
  bool take();
  bool has_due() const { return !due_.empty(); }
  // When take() has something to do; ~0: never.
  std::uint64_t next_ns(std::uint64_t now_ns) const { return queue_.next_ns(now_ns); }
  void refuse_all(const Error& why);

 private:
  using Try = QuiesceQueue::Try;
  static constexpr std::uint64_t kPauseNs = 5'000'000;
  template <typename T>
  static Try tried(const Done<T>& done, Result<T> result) {
    // Of a device that is held up; where it is lost, or the daemon ends, the reason says so.
    if (!result && result.error().code == ErrorCode::Unavailable &&
        result.error().reason == Reason::None)
      return {.state = Try::State::HeldUp, .why = std::move(result).error()};
    if (done) done(std::move(result));
    return {};
  }
  // False: it goes on in another turn, for which nobody pays: others' grids run meanwhile.
  static Try tried(const Done<void>& done, Result<bool> is_over) {
    if (!is_over) return tried(done, Status(std::move(is_over).error()));
    if (!*is_over) return {.state = Try::State::GoesOn, .pause_ns = kPauseNs};
    return tried(done, Status());
  }
  // None: likewise.
  template <typename T>
  static Try tried(const Done<T>& done, Result<std::optional<T>> result) {
    if (!result) return tried(done, Result<T>(std::move(result).error()));
    if (!*result) return {.state = Try::State::GoesOn};
    return tried(done, Result<T>(std::move(**result)));
  }

  WorkerState& state_;
  QuiesceQueue queue_;
  std::deque<QuiesceQueue::Request> due_;  // taken from there
};

}  // namespace arcomm
