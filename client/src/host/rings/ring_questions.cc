#include "client/src/host/rings/ring_questions.h"

#include <algorithm>

namespace arcomm::client {

// Of an index that no operation's request has.
std::uint64_t RingQuestions::next_ticket() {
  return std::uint64_t{++last_} << 32 | 0xffff'ffff;
}

ring::Push RingQuestions::ask(Question& question) {
  if (open_.size() >= kMost) return ring::Push::Full;
  const std::uint64_t ticket = next_ticket();
  question.request.ticket = ticket;
  const ring::Push pushed = rings_.send_aside(question.request);
  if (pushed == ring::Push::Done) {
    open_.push_back(
        {.ticket = ticket, .makes_plan = question.request.plan == 0, .question = &question});
  }
  return pushed;
}

void RingQuestions::give_up(const Question& question) {
  const auto open = std::ranges::find(open_, &question, &Open::question);
  if (open != open_.end()) open->question = nullptr;
}

void RingQuestions::take(const ring::Completion& completion) {
  const auto open = std::ranges::find(open_, completion.ticket, &Open::ticket);
  if (open == open_.end()) return;  // of an operation that this side has closed
  const Open asked = *open;
  open_.erase(open);
  if (asked.question != nullptr) {
    asked.question->answer = completion;
    asked.question->is_answered.store(true, std::memory_order_release);
    any_answered_ = true;
  } else if (asked.makes_plan && completion.code == 0) {
    late_.push_back(PlanId::from_bits(completion.seq));
  }
}

}  // namespace arcomm::client
