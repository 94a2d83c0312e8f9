#include "daemon/memory/fair_share.h"

#include <algorithm>

namespace arcomm {
namespace {

// What was taken of it.
template <typename Amounts>
std::uint64_t drop(Amounts& amounts, std::uint32_t key, std::uint64_t amount) {
  const auto found = amounts.find(key);
  if (found == amounts.end()) return 0;
  const std::uint64_t dropped = std::min(amount, found->second);
  if ((found->second -= dropped) == 0) amounts.erase(found);
  return dropped;
}

}  // namespace

FairShare::Answer FairShare::ask(uid_t uid, std::uint64_t amount) const {
  if (amount == 0) return Answer::Yes;
  const std::uint64_t of_uid = held(by_uid_, uid);
  if (of_uid > limits_.per_uid || amount > limits_.per_uid - of_uid) return Answer::UidHasMost;
  if (limits_.node == kNoLimit) return Answer::Yes;
  const std::uint64_t free = limits_.node - std::min(limits_.node, total_);
  if (amount > free) return Answer::NodeIsShort;
  // As though it asked for one after the other: the last of them finds free - amount + 1 free, and
  // has taken all the others. Divided rather than multiplied, which could overflow.
  const std::uint64_t before_last = of_tenant(uid) + (amount - 1);
  return before_last / limits_.greed < free - amount + 1 ? Answer::Yes : Answer::NodeIsShort;
}

void FairShare::take(uid_t uid, std::uint64_t amount) {
  if (amount == 0) return;
  by_uid_[uid] += amount;
  by_tenant_[first_of_range(uid)] += amount;
  total_ += amount;
}

void FairShare::give_back(uid_t uid, std::uint64_t amount) {
  const std::uint64_t dropped = drop(by_uid_, uid, amount);
  drop(by_tenant_, first_of_range(uid), dropped);
  total_ -= dropped;
}

FairShare::Holder FairShare::find_largest() const {
  Holder most;
  for (const auto& [uid, amount] : by_uid_) {
    if (amount > most.amount || (amount == most.amount && uid < most.uid)) most = {uid, amount};
  }
  return most;
}

}  // namespace arcomm
