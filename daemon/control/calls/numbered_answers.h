// The last answers of each session that gave something, by the numbers that the client gave its
// calls: a client that gives up on a call cannot know what came of it, nor name that. It takes back
// whatever the call of that number has given, or may give yet. Thread: the control loop.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <utility>

#include "daemon/control/control_state.h"

namespace arcomm {

class NumberedAnswers {
 public:
  // Clients have few calls under way, and give up on them at once or not at all.
  static constexpr std::size_t kMostOfSession = 64;

  explicit NumberedAnswers(ControlState& state) : state_(state) {}

  // Hands on what is answered and remembers how to undo it; where it was taken back already,
  // undoes it and answers Cancelled.
  template <typename Reply>
  Answer<Reply> remembered(const Caller& caller, const v1::SessionRef& session,
                           std::function<void(const Reply&)> undo, Answer<Reply> answer) {
    if (session.call() == 0) return answer;
    return [this, caller, session, undo = std::move(undo),
            answer = std::move(answer)](const Result<Reply>& reply) {
      if (!reply) return answer(reply);
      const auto take_back = [undo, given = *reply] { undo(given); };
      if (remember(caller, session, take_back)) return answer(reply);
      take_back();
      answer(error(ErrorCode::Cancelled, Reason::None, "its caller has given up on this call"));
    };
  }
  void take_back(const Caller& caller, const v1::TakeBackRequest& request,
                 const Answer<v1::Empty>& answer);

 private:
  // False: its caller has given up on it.
  bool remember(const Caller& caller, const v1::SessionRef& session,
                std::function<void()> take_back);

  ControlState& state_;
};

}  // namespace arcomm
