#include "daemon/session/session.h"

#include <utility>

namespace arcomm {

Session::Session(SessionOrigin origin, ring::Segment segment, UniqueFd doorbell,
                 std::uint32_t max_in_flight, std::shared_ptr<Tenant> tenant, std::uint64_t now_ns)
    : opened_ns(now_ns),
      origin_(std::move(origin)),
      segment_(std::move(segment)),
      doorbell_(std::move(doorbell)),
      max_in_flight_(max_in_flight),
      tenant_(std::move(tenant)),
      requests_(segment_.requests()),
      completions_(segment_.completions()),
      requests_bell_(segment_.control().requests.consumer_sleeps, doorbell_.get()),
      completions_bell_(segment_.control().completions.consumer_sleeps) {}

Session::Room Session::room() {
  if (in_flight_ < completions_.known_free()) return Room::Yes;
  if (completions_.refresh() == ring::Push::Corrupt) return Room::Corrupt;
  return in_flight_ < completions_.known_free() ? Room::Yes : Room::No;
}

bool Session::complete(const ring::Completion& completion) {
  return completions_.push(completion) == ring::Push::Done;
}

void Session::set_state(ring::SessionState state, Reason reason) {
  state_ = state;
  ring::ControlLines& control = segment_.control();
  control.session_reason.store(static_cast<std::uint32_t>(reason), std::memory_order_relaxed);
  control.session_state.store(static_cast<std::uint32_t>(state), std::memory_order_release);
  completions_bell_.ring_all();
}

void Session::set_core_is_shared(bool shared) {
  segment_.control().core_is_shared.store(shared ? 1 : 0, std::memory_order_relaxed);
}

void Session::set_oversubscribed(bool oversubscribed, bool by_clients) {
  if (oversubscribed_ == oversubscribed && oversubscribed_by_clients_ == by_clients) return;
  oversubscribed_ = oversubscribed;
  oversubscribed_by_clients_ = by_clients;
  ring::ControlLines& control = segment_.control();
  control.oversubscribed.store(oversubscribed ? 1 : 0, std::memory_order_relaxed);
  control.oversubscribed_by_clients.store(by_clients ? 1 : 0, std::memory_order_relaxed);
}

}  // namespace arcomm
