#include "daemon/exec/gpu/network/early_launches.h"

#include <algorithm>
#include <utility>

#include "daemon/exec/clock.h"
#include "daemon/exec/gpu/network/network_request.h"
#include "daemon/telemetry/log/log.h"

namespace arcomm {

const EarlyLaunches::Early* EarlyLaunches::find(const Communicator& communicator) const {
  const auto found = std::ranges::find(all_, &communicator, &Early::communicator);
  return found == all_.end() ? nullptr : &*found;
}

void EarlyLaunches::want(Communicator& communicator, NetworkFifos& fifos, const Arrival& arrival,
                         std::uint64_t now_ns) {
  if (find(communicator) != nullptr || remaining_ns(arrival, now_ns) < kLeastLeftNs) return;
  all_.push_back({.communicator = &communicator,
                  .fifos = &fifos,
                  .seq = arrival.seq,
                  .since_ns = now_ns,
                  .state = State::Wanted});
  bool moved = false;
  if (look_at(all_.back(), now_ns, moved)) all_.pop_back();
}

bool EarlyLaunches::agreed(const Communicator& communicator) {
  Early* const early = find(communicator);
  if (early == nullptr || early->state == State::Leaving) return false;
  const bool is_its = early->seq == communicator.board.head()->seq;
  const bool is_launched = early->state == State::Launched;
  if (!is_its) {
    if (is_launched) let_go(*early);
    return false;
  }
  all_.erase(all_.begin() + (early - all_.data()));
  return is_launched;
}

const Arrival* EarlyLaunches::awaited(const Early& early) {
  const Communicator& its = *early.communicator;
  const Arrival* const arrival = its.ready() ? its.board.find(early.seq) : nullptr;
  // Running, and not taken by agreed(): it waits until all nodes have a place for it.
  const bool waits = arrival != nullptr && (arrival->state == Arrival::State::Matched ||
                                            arrival->state == Arrival::State::Agreed ||
                                            arrival->state == Arrival::State::Running);
  return waits ? arrival : nullptr;
}

bool EarlyLaunches::launch(Early& early, const Arrival& arrival, std::uint64_t now_ns) {
  GpuGroup& group = *gpus_of(*early.communicator);
  const GpuExchange cut = early.fifos->cut_of(arrival.signature);
  // It may be long until the peers call: nobody here is to wait for its place, or behind it.
  if (group.members.front().queue == 0 || !groups_.room.enter_narrow(group.place, cut.blocks()))
    return false;
  group.has_run = true;
  early.state = State::Launched;
  early.since_ns = now_ns;
  const Status launched = launch_between_nodes(*early.communicator, buffers_, *early.fifos, now_ns);
  if (launched) return true;
  log::error("an operation between nodes could not be launched before they agreed: {}",
             launched.error().message);
  leave_room(early);
  early.fifos->fail(launched.error());
  return false;
}

void EarlyLaunches::let_go(Early& early) {
  if (std::exchange(early.state, State::Leaving) == State::Launched) early.fifos->end_early();
}

void EarlyLaunches::let_go(const Communicator& communicator) {
  Early* const early = find(communicator);
  if (early == nullptr) return;
  if (early->state != State::Wanted) return let_go(*early);
  all_.erase(all_.begin() + (early - all_.data()));
}

void EarlyLaunches::leave_room(const Early& early) const {
  GpuGroup& group = *gpus_of(*early.communicator);
  group.has_run = false;
  if (!group.place.is_promised) groups_.room.leave(group.place);
}

bool EarlyLaunches::look_at(Early& early, std::uint64_t now_ns, bool& moved) {
  const GpuGroup& group = *gpus_of(*early.communicator);
  const Arrival* const arrival = awaited(early);
  const bool waits = arrival != nullptr && now_ns - early.since_ns < most_ns_;
  if (early.state == State::Wanted) {
    if (!waits || group.closed) return true;
    // The one before it has not ended.
    if (arrival != early.communicator->board.head() || group.is_in_queues()) return false;
    moved = true;
    return !launch(early, *arrival, now_ns);
  }
  if (early.state == State::Launched) {
    if (waits && !early.fifos->has_ended()) return false;
    let_go(early);
    moved = true;
  }
  if (early.fifos->has_ended()) {
    early.fifos->forget_early();
  } else if (group.members.front().engine->broken()) {
    // It may still run: its words stay as they are, and nothing follows it.
    early.fifos->fail(error(ErrorCode::Unavailable, Reason::None,
                            "the GPU does not answer, and a kernel may be left on it"));
  } else {
    return false;
  }
  leave_room(early);
  return moved = true;
}

bool EarlyLaunches::work(std::uint64_t now_ns) {
  bool moved = false;
  std::erase_if(all_, [&](Early& early) { return look_at(early, now_ns, moved); });
  return moved;
}

bool EarlyLaunches::have_left() {
  std::erase_if(all_, [](const Early& early) { return early.state == State::Wanted; });
  for (Early& early : all_) let_go(early);
  work(now_ns());
  return all_.empty();
}

void EarlyLaunches::forget(const Communicator& communicator) {
  Early* const early = find(communicator);
  if (early == nullptr) return;
  if (early->state != State::Wanted) leave_room(*early);
  all_.erase(all_.begin() + (early - all_.data()));
}

}  // namespace arcomm
