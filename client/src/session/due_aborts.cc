#include "client/src/session/due_aborts.h"

#include <algorithm>

namespace arcomm::client {
namespace {

// With the guard that operations are given, within the 100 ms by which a call may be late.
constexpr std::chrono::milliseconds kTellFor{20};

bool contains(const std::vector<MemberId>& members, MemberId member) {
  return std::ranges::find(members, member) != members.end();
}

}  // namespace

void DueAborts::add(MemberId member) {
  const std::lock_guard lock(mutex_);
  due_.push_back({member});
  any_.store(true, std::memory_order_release);
}

void DueAborts::forget(MemberId member) {
  const std::lock_guard lock(mutex_);
  std::erase_if(due_, [member](const Due& due) { return due.member == member; });
}

void DueAborts::tell() {
  if (!any()) return;
  const std::vector<MemberId> members = take();
  const Deadline deadline = Deadline::after(kTellFor);
  std::vector<MemberId> missed;
  for (const MemberId member : members) {
    if (deadline.passed() || !tell_(member, deadline)) missed.push_back(member);
  }
  put_back(members, missed);
}

std::vector<MemberId> DueAborts::take() {
  const std::lock_guard lock(mutex_);
  any_.store(false, std::memory_order_relaxed);
  std::vector<MemberId> taken;
  for (Due& due : due_) {
    if (!std::exchange(due.is_being_told, true)) taken.push_back(due.member);
  }
  return taken;
}

// Those that were forgotten meanwhile stay forgotten.
void DueAborts::put_back(const std::vector<MemberId>& taken, const std::vector<MemberId>& missed) {
  const std::lock_guard lock(mutex_);
  std::erase_if(due_, [&](const Due& due) {
    return contains(taken, due.member) && !contains(missed, due.member);
  });
  for (Due& due : due_) {
    if (!contains(missed, due.member)) continue;
    due.is_being_told = false;
    any_.store(true, std::memory_order_release);
  }
}

}  // namespace arcomm::client
