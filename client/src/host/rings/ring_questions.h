// What a session asks its worker in the rings beside operations: for plans, or to be rid of one
// (proto/ring/layout.h, kPlanMagic). Each question gets one answer. A caller that stops waiting
// leaves its question here: a plan that comes late, and that nobody knows, is kept until a caller
// removes it.
// Thread: under the mutex of the session's Submission, but for Question::is_answered.
#pragma once

#include <atomic>
#include <cstdint>
#include <utility>
#include <vector>

#include "client/src/host/rings/session_rings.h"
#include "proto/ring/layout.h"
#include "proto/types.h"

namespace arcomm::client {

struct Question {
  ring::WorkRequest request;  // less its ticket
  ring::Completion answer;    // once is_answered
  std::atomic<bool> is_answered{false};
};

class RingQuestions {
 public:
  // rings: outlives it.
  explicit RingQuestions(SessionRings& rings) : rings_(rings) {}

  // Full where so many are open: it was not asked.
  ring::Push ask(Question& question);
  // The question ends, answered or not.
  void give_up(const Question& question);
  // A completion of no operation.
  void take(const ring::Completion& completion);

  // Plans that came too late, and that nobody else will remove.
  std::vector<PlanId> take_late() { return std::exchange(late_, {}); }
  // Whether one was answered since the last call: somebody may wait for it.
  bool take_any_answered() { return std::exchange(any_answered_, false); }

 private:
  static constexpr std::size_t kMost = 64;  // one for each thread that asks, and some left behind
  struct Open {
    std::uint64_t ticket = 0;
    bool makes_plan = false;
    Question* question = nullptr;  // null: nobody waits for the answer
  };

  std::uint64_t next_ticket();

  SessionRings& rings_;
  std::vector<Open> open_;
  std::vector<PlanId> late_;
  std::uint32_t last_ = 0;
  bool any_answered_ = false;
};

}  // namespace arcomm::client
