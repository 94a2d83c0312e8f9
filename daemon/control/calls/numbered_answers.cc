#include "daemon/control/calls/numbered_answers.h"

#include <algorithm>
#include <deque>
#include <type_traits>

namespace arcomm {
namespace {

// So many are kept of each session that nothing of a client's message may hang on them.
static_assert(std::is_trivially_copyable_v<NumberedAnswer>);

template <typename T>
void add(std::deque<T>& last, T one) {
  last.push_back(one);
  if (last.size() > NumberedAnswers::kMostOfSession) last.pop_front();
}

}  // namespace

bool NumberedAnswers::remember(SessionId session, NumberedAnswer answer) {
  SessionEntry* owner = state_.ledger.find(session);
  if (owner == nullptr) return true;  // and what it gave went with it
  if (std::erase(owner->given_up, answer.call) != 0) {
    let_go(*owner, answer.given);
    return false;
  }
  add(owner->answers, answer);
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
  std::deque<NumberedAnswer>& answers = (*owner)->answers;
  const auto found =
      std::ranges::find_if(answers, [&](const NumberedAnswer& one) { return one.call == call; });
  if (found == answers.end()) {
    add((*owner)->given_up, call);
  } else {
    const Given given = found->given;
    answers.erase(found);
    let_go(**owner, given);
  }
  answer(v1::Empty{});
}

void NumberedAnswers::let_go(const SessionEntry& session, const Given& given) {
  if (const auto* buffer = std::get_if<BufferId>(&given)) buffers_.take_back(session, *buffer);
  if (const auto* plan = std::get_if<PlanId>(&given)) plans_.take_back(session, *plan);
}

}  // namespace arcomm
