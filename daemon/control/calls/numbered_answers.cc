#include "daemon/control/calls/numbered_answers.h"

#include <algorithm>
#include <deque>
#include <optional>

namespace arcomm {
namespace {

// Takes it out; none: nothing has come of that call yet, or it was long ago.
std::optional<NumberedAnswer> take(std::deque<NumberedAnswer>& answers, std::uint64_t call) {
  const auto found =
      std::ranges::find_if(answers, [&](const NumberedAnswer& one) { return one.call == call; });
  if (found == answers.end()) return std::nullopt;
  NumberedAnswer answer = std::move(*found);
  answers.erase(found);
  return answer;
}

void add(std::deque<NumberedAnswer>& answers, NumberedAnswer answer) {
  answers.push_back(std::move(answer));
  if (answers.size() > NumberedAnswers::kMostOfSession) answers.pop_front();
}

}  // namespace

bool NumberedAnswers::remember(const Caller& caller, const v1::SessionRef& session,
                               std::function<void()> take_back) {
  const Result<SessionEntry*> owner = state_.authorize(caller, session);
  if (!owner) return true;
  const std::optional<NumberedAnswer> earlier = take((*owner)->answers, session.call());
  if (earlier && !earlier->take_back) return false;
  add((*owner)->answers, {.call = session.call(), .take_back = std::move(take_back)});
  return true;
}

void NumberedAnswers::take_back(const Caller& caller, const v1::TakeBackRequest& request,
                                const Answer<v1::Empty>& answer) {
  const Result<SessionEntry*> owner = state_.authorize(caller, request.session());
  if (!owner) return answer(owner.error());
  const std::uint64_t call = request.session().call();
  if (call == 0) {
    return answer(error(ErrorCode::InvalidArgument, Reason::BadValue,
                        "a call that has no number cannot be taken back"));
  }
  const std::optional<NumberedAnswer> given = take((*owner)->answers, call);
  if (given && given->take_back) {
    given->take_back();
  } else {
    add((*owner)->answers, {.call = call, .take_back = {}});
  }
  answer(v1::Empty{});
}

}  // namespace arcomm
