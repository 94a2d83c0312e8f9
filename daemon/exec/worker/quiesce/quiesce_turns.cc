#include "daemon/exec/worker/quiesce/quiesce_turns.h"

namespace arcomm {
namespace {

// After so long what else is due waits for the next turn.
constexpr std::uint64_t kQuiescedNs = 10'000'000;

}  // namespace

bool QuiesceTurns::take() {
  if (due_.empty()) {
    if (queue_.empty()) return false;
    for (QuiesceQueue::Request& request : queue_.take(now_ns())) due_.push_back(std::move(request));
    if (due_.empty()) return false;
  }
  state_.backend->in_one_quiescing([this] {
    const std::uint64_t until = now_ns() + kQuiescedNs;
    do {
      QuiesceQueue::Request request = std::move(due_.front());
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

void QuiesceTurns::refuse_all(const Error& why) {
  for (const QuiesceQueue::Request& request : std::exchange(due_, {})) request.refuse(why);
  queue_.refuse_all(why);
}

}  // namespace arcomm
