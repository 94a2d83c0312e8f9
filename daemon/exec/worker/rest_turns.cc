#include "daemon/exec/worker/rest_turns.h"

namespace arcomm {
namespace {

// After so long what else is due waits for the next turn.
constexpr std::uint64_t kRestNs = 10'000'000;

}  // namespace

bool RestTurns::take() {
  if (due_.empty()) {
    if (queue_.empty()) return false;
    for (RestQueue::Request& request : queue_.take(now_ns())) due_.push_back(std::move(request));
    if (due_.empty()) return false;
  }
  state_.backend->at_rest([this] {
    const std::uint64_t until = now_ns() + kRestNs;
    do {
      RestQueue::Request request = std::move(due_.front());
      due_.pop_front();
      const std::uint64_t since = now_ns();
      Try tried = request.act();
      tried.took_ns = now_ns() - since;
      if (tried.state == Try::State::Answered) continue;
      queue_.put_back(std::move(request), std::move(tried), now_ns());
    } while (!due_.empty() && now_ns() < until);
  });
  return true;
}

void RestTurns::refuse_all(const Error& why) {
  for (const RestQueue::Request& request : std::exchange(due_, {})) request.refuse(why);
  queue_.refuse_all(why);
}

}  // namespace arcomm
