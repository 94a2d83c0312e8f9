// The last answers of each session that gave something, by the numbers that the client gave its
// calls: a client that gives up on a call cannot know what came of it, nor name that. It takes back
// whatever the call of that number has given, or may give yet. Thread: the control loop.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <variant>

#include "daemon/control/calls/buffers/buffer_calls.h"
#include "daemon/control/calls/plan_calls.h"
#include "daemon/control/control_state.h"

namespace arcomm {

class NumberedAnswers {
 public:
  // Clients have few calls under way, and give up on them at once or not at all. As many answers,
  // and as many numbers of calls that may answer yet.
  static constexpr std::size_t kMostOfSession = 64;

  NumberedAnswers(ControlState& state, BufferCalls& buffers, PlanCalls& plans)
      : state_(state), buffers_(buffers), plans_(plans) {}

  // Hands on what is answered and remembers what it gave; where it was taken back already, lets go
  // of that and answers Cancelled.
  template <typename Reply>
  Answer<Reply> remembered(const Caller& caller, const v1::SessionRef& session,
                           Answer<Reply> answer) {
    const Result<SessionEntry*> owner = state_.authorize(caller, session);
    if (session.call() == 0 || !owner) return answer;
    return [this, id = (*owner)->id, call = session.call(),
            answer = std::move(answer)](const Result<Reply>& reply) {
      if (!reply || remember(id, {.call = call, .given = given_by(*reply)})) return answer(reply);
      answer(error(ErrorCode::Cancelled, Reason::None, "its caller has given up on this call"));
    };
  }
  void take_back(const Caller& caller, const v1::TakeBackRequest& request,
                 const Answer<v1::Empty>& answer);

 private:
  using Given = std::variant<BufferId, PlanId>;

  static Given given_by(const v1::BufferReply& reply) {
    return BufferId::from_bits(reply.buffer());
  }
  static Given given_by(const v1::CreatePlanReply& reply) {
    return PlanId::from_bits(reply.plan());
  }
  // False: its caller has given up on it, and it is let go of.
  bool remember(SessionId session, NumberedAnswer answer);
  void let_go(const SessionEntry& session, const Given& given);

  ControlState& state_;
  BufferCalls& buffers_;
  PlanCalls& plans_;
};

}  // namespace arcomm
