#include "daemon/exec/worker/quiesce/quiesce_queue.h"

#include <algorithm>
#include <string>
#include <utility>

#include "daemon/telemetry/uid_range.h"

namespace arcomm {
namespace {

constexpr std::size_t kManyUsers = 1024;
constexpr std::uint64_t kSecondNs = 1'000'000'000;
constexpr uid_t kNobody = ~uid_t{0};  // their sessions have gone meanwhile

uid_t owner_of(const QuiesceQueue::Request& request) {
  return request.uids.empty() ? kNobody : request.uids.front();
}

}  // namespace

bool QuiesceQueue::is_beyond_few(const User& user, std::uint64_t now_ns) const {
  return user.bucket.due_ns(kOfUser, now_ns, kOfUser.burst - kFew) > now_ns;
}

void QuiesceQueue::line_up(uid_t whose, bool first) {
  const uid_t number = first_of_range(whose);
  std::deque<uid_t>& its = ranges_[number].turns;
  if (its.empty()) turns_.insert(first ? turns_.begin() : turns_.end(), number);
  its.insert(first ? its.begin() : its.end(), whose);
}

void QuiesceQueue::add(Request request, std::uint64_t now_ns) {
  std::ranges::sort(request.uids);
  request.uids.erase(std::unique(request.uids.begin(), request.uids.end()), request.uids.end());
  if (size_ == kMostWaiting) {
    return request.refuse(error(ErrorCode::ResourceExhausted, Reason::Quota, kMostWaiting,
                                " requests wait until the GPUs may stop for them: try again"));
  }
  std::uint64_t due_ns = now_ns;
  const auto refuse_until = [&](std::uint64_t due, const auto&... who) {
    request.refuse(error(ErrorCode::ResourceExhausted, Reason::Quota, who...,
                         " times a second, and each time the GPUs stop for all: try again in ",
                         (due - now_ns) / 1'000'000, " ms"));
  };
  for (const uid_t uid : request.uids) {
    const User& user = users_[uid];
    const std::uint64_t due = user.bucket.due_ns(kOfUser, now_ns, request.cost);
    due_ns = std::max(due_ns, due);
    if (due > now_ns + kLongestWaitNs)
      return refuse_until(due, "uid ", uid, " registers memory, joins and leaves faster than ",
                          kSecondNs / kOfUser.interval_ns);
    if (!is_beyond_few(user, now_ns)) continue;
    const uid_t first = first_of_range(uid);
    const std::uint64_t of_all = ranges_[first].bucket.due_ns(kOfRange, now_ns, request.cost);
    due_ns = std::max(due_ns, of_all);
    if (of_all > now_ns + kLongestWaitNs)
      return refuse_until(of_all, "uids ", first, " to ", first + kUidRange - 1,
                          " register memory, join and leave together faster than ",
                          kSecondNs / kOfRange.interval_ns);
  }
  if (users_.size() > kManyUsers) forget_idle(now_ns);
  const uid_t whose = owner_of(request);
  if (users_[whose].waiting.size() >= kMostOfUser) {
    return request.refuse(
        error(ErrorCode::ResourceExhausted, Reason::Quota, kMostOfUser, " requests of uid ", whose,
              " wait until the GPUs may stop for them",
              held_up_ ? ", which are held up: " + held_up_->message : std::string(": try again")));
  }
  std::optional<uid_t> paid;  // by the range of the uids before, which are sorted
  for (const uid_t uid : request.uids) {
    users_[uid].bucket.take(kOfUser, now_ns, request.cost);
    const uid_t range = first_of_range(uid);
    if (paid != range) ranges_[range].bucket.take(kOfRange, now_ns, request.cost);
    paid = range;
  }
  User& user = users_[whose];
  if (user.waiting.empty()) line_up(whose, false);
  const std::uint64_t longest = now_ns + kLongestHeldNs;
  request.deadline_ns = request.deadline_ns == 0 ? longest : std::min(request.deadline_ns, longest);
  first_deadline_ns_ = std::min(first_deadline_ns_, request.deadline_ns);
  request.number = ++last_number_;
  user.waiting.push_back({std::move(request), due_ns});
  ++size_;
  earliest_ns_ = std::min(earliest_ns_, due_ns);
}

void QuiesceQueue::put_back(Request request, Try tried, std::uint64_t now_ns) {
  std::uint64_t due_ns = now_ns + tried.pause_ns;
  if (tried.state == Try::State::HeldUp) {
    due_ns += std::max(kHeldUpNs, kForOthers * tried.took_ns);
    held_up_ = request.held_up = std::move(tried.why);
  } else {
    held_up_.reset();
    request.held_up.reset();
  }
  const uid_t whose = owner_of(request);
  User& user = users_[whose];
  if (user.waiting.empty()) line_up(whose, true);
  first_deadline_ns_ = std::min(first_deadline_ns_, request.deadline_ns);
  const auto behind = std::ranges::find_if(user.waiting, [&](const Waiting& waiting) {
    return waiting.request.number > request.number;
  });
  user.waiting.insert(behind, {std::move(request), due_ns});
  ++size_;
  earliest_ns_ = std::min(earliest_ns_, due_ns);
}

void QuiesceQueue::expire(std::uint64_t now_ns) {
  std::vector<Request> expired;
  first_deadline_ns_ = ~std::uint64_t{0};
  for (auto& [uid, user] : users_) {
    std::erase_if(user.waiting, [&](Waiting& waiting) {
      if (waiting.request.deadline_ns > now_ns) {
        first_deadline_ns_ = std::min(first_deadline_ns_, waiting.request.deadline_ns);
        return false;
      }
      expired.push_back(std::move(waiting.request));
      return true;
    });
  }
  size_ -= expired.size();
  for (auto& [first, range] : ranges_)
    std::erase_if(range.turns, [this](uid_t whose) { return users_[whose].waiting.empty(); });
  std::erase_if(turns_, [this](uid_t first) { return ranges_[first].turns.empty(); });
  for (Request& request : expired) {
    const std::optional<Error>& why = request.held_up ? request.held_up : held_up_;
    request.refuse(
        why ? error(ErrorCode::Unavailable, Reason::None,
                    "the GPUs could not be quiesced for it until its deadline: ", why->message)
            : error(ErrorCode::Unavailable, Reason::None,
                    "its turn to stop the GPUs did not come until its deadline"));
  }
  if (size_ == 0) held_up_.reset();
}

// Takes the user out of its range's turns.
std::optional<uid_t> QuiesceQueue::next_due(Range& range, std::uint64_t now_ns,
                                            std::uint64_t& earliest_ns) {
  for (std::size_t left = range.turns.size(); left > 0; --left) {
    const uid_t whose = range.turns.front();
    range.turns.pop_front();
    const std::uint64_t due_ns = users_[whose].waiting.front().due_ns;
    if (due_ns <= now_ns) return whose;
    earliest_ns = std::min(earliest_ns, due_ns);
    range.turns.push_back(whose);
  }
  return std::nullopt;
}

std::vector<QuiesceQueue::Request> QuiesceQueue::take(std::uint64_t now_ns) {
  std::vector<Request> taken;
  if (now_ns >= first_deadline_ns_) expire(now_ns);
  if (now_ns < earliest_ns_ || all_.due_ns(kOfAll, now_ns) > now_ns) return taken;
  std::uint64_t earliest_ns = ~std::uint64_t{0};
  std::deque<uid_t> later;
  std::size_t passed = 0;  // one after the other
  while (passed < turns_.size() && taken.size() < kMostAtOnce) {
    const uid_t first = turns_.front();
    turns_.pop_front();
    Range& range = ranges_[first];
    const std::optional<uid_t> whose = next_due(range, now_ns, earliest_ns);
    if (!whose) {
      turns_.push_back(first);
      ++passed;
      continue;
    }
    passed = 0;
    std::deque<Waiting>& waiting = users_[*whose].waiting;
    taken.push_back(std::move(waiting.front().request));
    waiting.pop_front();
    --size_;
    if (!range.turns.empty()) turns_.push_back(first);
    if (waiting.empty()) continue;
    // What was held up may be so again, and keeps its place before those behind it.
    taken.back().held_up ? later.push_back(*whose) : line_up(*whose, false);
  }
  for (const uid_t whose : later) line_up(whose, false);
  if (!taken.empty()) {
    all_.take(kOfAll, now_ns);
  } else {
    earliest_ns_ = earliest_ns;
  }
  return taken;
}

std::uint64_t QuiesceQueue::next_ns(std::uint64_t now_ns) const {
  if (empty()) return ~std::uint64_t{0};
  return std::min(first_deadline_ns_, std::max(earliest_ns_, all_.due_ns(kOfAll, now_ns)));
}

void QuiesceQueue::refuse_all(const Error& why) {
  for (const uid_t first : std::exchange(turns_, {})) {
    for (const uid_t whose : std::exchange(ranges_[first].turns, {})) {
      for (const Waiting& waiting : std::exchange(users_[whose].waiting, {}))
        waiting.request.refuse(why);
    }
  }
  size_ = 0;
  first_deadline_ns_ = earliest_ns_ = ~std::uint64_t{0};
}

void QuiesceQueue::forget_idle(std::uint64_t now_ns) {
  std::erase_if(users_, [now_ns](const auto& user) {
    return user.second.waiting.empty() && user.second.bucket.is_full(now_ns);
  });
  std::erase_if(ranges_, [now_ns](const auto& range) {
    return range.second.turns.empty() && range.second.bucket.is_full(now_ns);
  });
}

}  // namespace arcomm
