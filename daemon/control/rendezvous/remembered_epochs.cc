#include "daemon/control/rendezvous/remembered_epochs.h"

#include <algorithm>

#include "daemon/telemetry/uid_range.h"

namespace arcomm {

void RememberedEpochs::remember(const UniqueIdBytes& unique_id, Epoch epoch,
                                Clock::time_point now) {
  forget(unique_id);
  while (!by_age_.empty() && now - by_age_.front().since >= kLifetime) forget(by_age_.begin());
  const uid_t user = first_of_range(epoch.uid);
  const auto held = of_user_.find(user);
  if (held != of_user_.end() && held->second >= kMostOfUser) {
    forget_oldest_of(user);
  } else if (by_age_.size() >= kMost) {
    forget_oldest_of(who_has_most());
  }
  by_id_.emplace(unique_id, by_age_.insert(by_age_.end(), Entry{unique_id, epoch, now}));
  ++of_user_[user];
}

std::optional<RememberedEpochs::Epoch> RememberedEpochs::find(const UniqueIdBytes& unique_id,
                                                              Clock::time_point now) const {
  const auto found = by_id_.find(unique_id);
  if (found == by_id_.end() || now - found->second->since >= kLifetime) return std::nullopt;
  return found->second->epoch;
}

void RememberedEpochs::forget(const UniqueIdBytes& unique_id) {
  if (const auto found = by_id_.find(unique_id); found != by_id_.end()) forget(found->second);
}

void RememberedEpochs::forget(Entries::iterator entry) {
  const auto held = of_user_.find(first_of_range(entry->epoch.uid));
  if (--held->second == 0) of_user_.erase(held);
  by_id_.erase(entry->unique_id);
  by_age_.erase(entry);
}

void RememberedEpochs::forget_oldest_of(uid_t user) {
  forget(std::ranges::find_if(
      by_age_, [user](const Entry& one) { return first_of_range(one.epoch.uid) == user; }));
}

uid_t RememberedEpochs::who_has_most() const {
  return std::ranges::max_element(of_user_, {}, [](const auto& one) { return one.second; })->first;
}

}  // namespace arcomm
