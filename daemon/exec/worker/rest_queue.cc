#include "daemon/exec/worker/rest_queue.h"

#include <algorithm>
#include <utility>

namespace arcomm {
namespace {

constexpr std::size_t kManyUsers = 1024;
constexpr std::uint64_t kSecondNs = 1'000'000'000;
constexpr uid_t kNobody = ~uid_t{0};  // their sessions have gone meanwhile

}  // namespace

void RestQueue::add(Request request, std::uint64_t now_ns) {
  std::ranges::sort(request.uids);
  request.uids.erase(std::unique(request.uids.begin(), request.uids.end()), request.uids.end());
  if (size_ == kMostWaiting) {
    return request.refuse(error(ErrorCode::ResourceExhausted, Reason::Quota, kMostWaiting,
                                " requests wait until the GPUs may stop for them: try again"));
  }
  std::uint64_t due_ns = now_ns;
  for (const uid_t uid : request.uids) {
    const std::uint64_t due = users_[uid].bucket.due_ns(kOfUser, now_ns, request.cost);
    due_ns = std::max(due_ns, due);
    if (due <= now_ns + kLongestWaitNs) continue;
    return request.refuse(
        error(ErrorCode::ResourceExhausted, Reason::Quota, "uid ", uid,
              " registers memory, joins and leaves faster than ", kSecondNs / kOfUser.interval_ns,
              " times a second, and each time the GPUs stop for all: try again in ",
              (due - now_ns) / 1'000'000, " ms"));
  }
  if (users_.size() > kManyUsers) forget_idle(now_ns);
  for (const uid_t uid : request.uids) users_[uid].bucket.take(kOfUser, now_ns, request.cost);
  const uid_t whose = request.uids.empty() ? kNobody : request.uids.front();
  User& user = users_[whose];
  if (user.waiting.empty()) turns_.push_back(whose);
  user.waiting.push_back({std::move(request), due_ns});
  ++size_;
  earliest_ns_ = std::min(earliest_ns_, due_ns);
}

std::vector<RestQueue::Request> RestQueue::take(std::uint64_t now_ns) {
  std::vector<Request> taken;
  if (now_ns < earliest_ns_ || all_.due_ns(kOfAll, now_ns) > now_ns) return taken;
  std::uint64_t earliest_ns = ~std::uint64_t{0};
  std::size_t passed = 0;  // one after the other
  while (passed < turns_.size() && taken.size() < kMostAtOnce) {
    const uid_t whose = turns_.front();
    turns_.pop_front();
    std::deque<Waiting>& waiting = users_[whose].waiting;
    if (waiting.front().due_ns > now_ns) {
      earliest_ns = std::min(earliest_ns, waiting.front().due_ns);
      turns_.push_back(whose);
      ++passed;
      continue;
    }
    passed = 0;
    taken.push_back(std::move(waiting.front().request));
    waiting.pop_front();
    --size_;
    if (!waiting.empty()) turns_.push_back(whose);
  }
  if (!taken.empty()) {
    all_.take(kOfAll, now_ns);
  } else {
    earliest_ns_ = earliest_ns;
  }
  return taken;
}

std::uint64_t RestQueue::next_ns(std::uint64_t now_ns) const {
  return empty() ? ~std::uint64_t{0} : std::max(earliest_ns_, all_.due_ns(kOfAll, now_ns));
}

void RestQueue::refuse_all(const Error& why) {
  for (const uid_t whose : std::exchange(turns_, {})) {
    for (const Waiting& waiting : std::exchange(users_[whose].waiting, {}))
      waiting.request.refuse(why);
  }
  size_ = 0;
}

void RestQueue::forget_idle(std::uint64_t now_ns) {
  std::erase_if(users_, [now_ns](const auto& user) {
    return user.second.waiting.empty() && user.second.bucket.is_full(now_ns);
  });
}

}  // namespace arcomm
