#include "daemon/exec/gpu/launch_room.h"

#include <algorithm>

#include "daemon/plan/in_stream_share.h"

namespace arcomm {
namespace {

using Part = LaunchPlace::Part;

// What is launched always finds an SM, however much of the rest is in-stream.
static_assert(kSparedSms > kResidentSms + 1, "the other is for gates, and what posts and waits");

bool share_a_gpu(const LaunchPlace& one, const LaunchPlace& other) {
  return std::ranges::any_of(one.parts, [&](const Part& part) {
    return std::ranges::any_of(other.parts,
                               [&](const Part& there) { return there.gpu == part.gpu; });
  });
}

bool share_a_queue(const LaunchPlace& one, const LaunchPlace& other) {
  return std::ranges::any_of(one.parts, [&](const Part& part) {
    return std::ranges::any_of(other.parts, [&](const Part& there) {
      return there.gpu == part.gpu && there.queue == part.queue;
    });
  });
}

// Whether one of two must wait for the other's end.
bool exclude_each_other(const LaunchPlace& one, bool one_is_wide, const LaunchPlace& other,
                        bool other_is_wide) {
  if (one_is_wide && other_is_wide) return share_a_gpu(one, other);
  const bool follow_each_other =
      !one_is_wide && !other_is_wide && !one.spans_nodes && !other.spans_nodes;
  return !follow_each_other && share_a_queue(one, other);
}

}  // namespace

bool LaunchRoom::is_in_the_way(const LaunchPlace& holder, const LaunchPlace& waiter) {
  return &holder != &waiter && holder.has_place() && waiter.turn != 0 &&
         exclude_each_other(holder, holder.is_wide, waiter, true);
}

std::uint32_t LaunchRoom::narrow_room(std::uint32_t gpu) const {
  const Gpu& here = gpus_[gpu];
  const std::uint32_t others = kResidentSms + here.in_stream + 1;  // and one for what is wide
  return here.sms - std::min(here.sms, others);
}

std::uint32_t LaunchRoom::narrow_taken(std::uint32_t gpu, const LaunchPlace& but) const {
  std::uint32_t taken = 0;
  for (const LaunchPlace* other : inside_) {
    if (other == &but || other->is_wide) continue;
    for (const Part& part : other->parts) taken += part.gpu == gpu ? other->blocks : 0;
  }
  return taken;
}

bool LaunchRoom::fits_narrow(const LaunchPlace& place, std::uint32_t blocks) const {
  return std::ranges::all_of(place.parts, [&](const Part& part) {
    return narrow_taken(part.gpu, place) + blocks <= narrow_room(part.gpu);
  });
}

void LaunchRoom::lend(const LaunchPlace& place, std::uint32_t blocks) {
  for (const Part& part : place.parts) gpus_[part.gpu].in_stream += blocks;
}

bool LaunchRoom::is_wanted(const LaunchPlace& holder) const {
  return std::ranges::any_of(
      waiting_, [&](const LaunchPlace* waiter) { return is_in_the_way(holder, *waiter); });
}

std::vector<const LaunchPlace*> LaunchRoom::waiting_beside(const LaunchPlace& holder) const {
  std::vector<const LaunchPlace*> reached{&holder};
  for (std::size_t i = 0; i < reached.size(); ++i) {
    for (const LaunchPlace* waiter : waiting_) {
      if (std::ranges::find(reached, waiter) == reached.end() && share_a_gpu(*reached[i], *waiter))
        reached.push_back(waiter);
    }
  }
  reached.erase(reached.begin());
  return reached;
}

bool LaunchRoom::has_lent(const LaunchPlace& place) {
  const bool has_all = std::ranges::all_of(place.parts, [&](const Part& part) {
    const std::uint32_t taken = narrow_taken(part.gpu, place);
    return taken == 0 || taken <= narrow_room(part.gpu);
  });
  has_wish_ |= !has_all;
  return has_all;
}

void LaunchRoom::take_back(const LaunchPlace& place, std::uint32_t blocks) {
  for (const Part& part : place.parts) {
    std::uint32_t& lent = gpus_[part.gpu].in_stream;
    lent -= std::min(lent, blocks);
  }
}

bool LaunchRoom::try_enter(LaunchPlace& place, std::uint32_t blocks, std::uint64_t turn) {
  // What is in flight and what comes follow each other: the larger counts, and what is wide stays
  // so until all has ended.
  const std::uint32_t most = std::max(blocks, place.blocks);
  const bool is_wide = place.is_wide || !fits_narrow(place, most);
  const auto excludes = [&](const LaunchPlace* other, bool other_is_wide) {
    return other != &place && exclude_each_other(place, is_wide, *other, other_is_wide);
  };
  // Those that wait will be wide.
  if (std::ranges::any_of(waiting_, [&](const LaunchPlace* other) {
        return other->turn < turn && excludes(other, true);
      }))
    return false;
  if (std::ranges::any_of(
          inside_, [&](const LaunchPlace* other) { return excludes(other, other->is_wide); }))
    return false;
  if (!place.has_place()) inside_.push_back(&place);
  place.blocks = most;
  place.is_wide = is_wide;
  return true;
}

bool LaunchRoom::enter(LaunchPlace& place, std::uint32_t blocks) {
  if (blocks == 0) return true;
  const std::uint64_t turn = place.turn != 0 ? place.turn : last_turn_ + 1;
  if (try_enter(place, blocks, turn)) {
    give_up_turn(place);
    return true;
  }
  if (place.turn == 0) {
    place.turn = last_turn_ = turn;
    waiting_.push_back(&place);
  }
  return false;
}

bool LaunchRoom::enter_ahead(LaunchPlace& place, std::uint32_t blocks) {
  return blocks == 0 || try_enter(place, blocks, last_turn_ + 1);
}

bool LaunchRoom::enter_narrow(LaunchPlace& place, std::uint32_t blocks) {
  const bool is_narrow = !place.is_wide && fits_narrow(place, std::max(blocks, place.blocks));
  return is_narrow && enter_ahead(place, blocks);
}

void LaunchRoom::leave(LaunchPlace& place) {
  std::erase(inside_, &place);
  place.blocks = 0;
  place.is_wide = false;
}

void LaunchRoom::give_up_turn(LaunchPlace& place) {
  std::erase(waiting_, &place);
  place.turn = 0;
}

}  // namespace arcomm
