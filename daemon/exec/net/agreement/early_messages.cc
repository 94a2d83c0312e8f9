#include "daemon/exec/net/agreement/early_messages.h"

#include <algorithm>
#include <utility>

namespace arcomm {

void EarlyMessages::keep(PeerId from, const net::FrameHeader& names, const net::Message& message,
                         std::uint64_t now_ns) {
  if (has_ended(names.communicator)) return count(NetDrop::Ended);
  const std::size_t bytes = sizeof(Kept) + message.body.size();
  std::size_t of_one = bytes;
  for (const Kept& kept : kept_) {
    if (kept.names.communicator == names.communicator) of_one += sizeof(Kept) + kept.body.size();
  }
  if (of_one > kMostBytesOfOne || bytes_ + bytes > kMostBytes) {
    count(NetDrop::TooMany);
    return note_lost(names.communicator);
  }
  bytes_ += bytes;
  kept_.push_back({.from = from,
                   .names = names,
                   .kind = message.kind,
                   .body = {message.body.begin(), message.body.end()},
                   .since_ns = now_ns});
}

std::vector<EarlyMessages::Kept> EarlyMessages::take(std::uint64_t communicator) {
  std::vector<Kept> taken;
  for (Kept& kept : kept_) {
    if (kept.names.communicator != communicator) continue;
    bytes_ -= sizeof(Kept) + kept.body.size();
    taken.push_back(std::move(kept));
  }
  std::erase_if(kept_, [&](const Kept& kept) { return kept.names.communicator == communicator; });
  return taken;
}

bool EarlyMessages::has_lost(std::uint64_t communicator) const {
  return std::ranges::find(lost_, communicator) != lost_.end();
}

void EarlyMessages::note_lost(std::uint64_t communicator) {
  if (has_lost(communicator)) return;
  if (lost_.size() == kMostRemembered) lost_.pop_front();
  lost_.push_back(communicator);
}

void EarlyMessages::drop(std::deque<Kept>::iterator which) {
  note_lost(which->names.communicator);
  bytes_ -= sizeof(Kept) + which->body.size();
  count(NetDrop::NeverFormed);
  kept_.erase(which);
}

void EarlyMessages::forget(PeerId from) {
  for (std::size_t i = 0; i < kept_.size();) {
    if (kept_[i].from == from) {
      drop(kept_.begin() + static_cast<std::ptrdiff_t>(i));
    } else {
      ++i;
    }
  }
}

void EarlyMessages::forget_old(std::uint64_t now_ns) {
  while (!kept_.empty() && kept_.front().since_ns + kLongestNs < now_ns) drop(kept_.begin());
}

void EarlyMessages::end(std::uint64_t communicator) {
  if (ended_.size() == kMostRemembered) ended_.pop_front();
  ended_.push_back(communicator);
}

bool EarlyMessages::has_ended(std::uint64_t communicator) const {
  return std::ranges::find(ended_, communicator) != ended_.end();
}

}  // namespace arcomm
