#include "daemon/proxy/adaptive_wait.h"

#include <poll.h>
#include <sched.h>

#include <algorithm>
#include <vector>

#include "proto/ring/doorbell.h"
#include "transport/device/pause.h"

namespace arcomm::proxy {
namespace {

std::uint64_t ns_of(std::chrono::nanoseconds span) {
  return static_cast<std::uint64_t>(span.count());
}

}  // namespace

Result<std::unique_ptr<AdaptiveWait>> AdaptiveWait::create(WaitPolicy policy) {
  auto event = ring::EventDoorbell::create();
  if (!event) return event.error();
  return std::unique_ptr<AdaptiveWait>(new AdaptiveWait(policy, std::move(*event)));
}

void AdaptiveWait::moved() {
  idle_since_ns_ = 0;
  nap_ = policy_.first_nap;
}

void AdaptiveWait::wait(const Around& around, const std::function<bool(bool)>& last_look) {
  const std::uint64_t now = now_ns();
  if (idle_since_ns_ == 0) idle_since_ns_ = now;
  const std::uint64_t idle = now - idle_since_ns_;
  const bool is_oversubscribed = lost_.sleeps(now);
  if (!is_oversubscribed && idle < ns_of(policy_.spin + policy_.yield)) {
    const bool spins = idle < ns_of(policy_.spin);
    if (spins) {
      for (int i = 0; i < 16; ++i) pause_briefly();
    } else {
      ::sched_yield();
    }
    const std::uint64_t then = now_ns();
    lost_.paused(now, then);
    count(spins ? WaitStage::Spin : WaitStage::Yield, now, then);
    return;
  }
  // The doorbell's protocol (proto/ring/doorbell.h): the flag, a full fence, one more look. Of two
  // who each store and then look, one sees the other.
  ring::EventDoorbell doorbell(asleep_, event_.get());
  doorbell.arm();
  if (last_look(true)) {
    doorbell.disarm();
    last_look(false);
    moved();
    return;
  }
  sleep(around, now_ns());
  doorbell.disarm();
  doorbell.drain();
  last_look(false);
}

void AdaptiveWait::sleep(const Around& around, std::uint64_t now) {
  std::uint64_t span = ns_of(policy_.longest_sleep);
  if (around.is_open) {
    nap_ = std::clamp(nap_, policy_.first_nap, policy_.longest_nap);
    span = ns_of(nap_);
    nap_ *= 2;
  }
  span = around.deadline_ns <= now ? 0 : std::min(span, around.deadline_ns - now);
  std::vector<pollfd> polled{{.fd = event_.get(), .events = POLLIN, .revents = 0}};
  for (const int descriptor : around.descriptors)
    polled.push_back({.fd = descriptor, .events = POLLIN, .revents = 0});
  timespec limit{};
  limit.tv_sec = static_cast<time_t>(span / 1'000'000'000);
  limit.tv_nsec = static_cast<long>(span % 1'000'000'000);
  // Interrupted by a signal or failed: the same as woken for nothing.
  const int ready = ::ppoll(polled.data(), polled.size(), &limit, nullptr);
  // Whoever rang has something: look with both eyes.
  if (ready > 0) moved();
  sleeps_.fetch_add(1, std::memory_order_relaxed);
  count(WaitStage::Sleep, now, now_ns());
}

void AdaptiveWait::count(WaitStage stage, std::uint64_t from_ns, std::uint64_t to_ns) {
  ns_[static_cast<std::size_t>(stage)].fetch_add(to_ns - from_ns, std::memory_order_relaxed);
}

void AdaptiveWait::ring() {
  if (ring::EventDoorbell(asleep_, event_.get()).ring())
    rings_.fetch_add(1, std::memory_order_relaxed);
}

WaitTimes AdaptiveWait::times() const {
  WaitTimes times;
  for (std::size_t stage = 0; stage < kWaitStages; ++stage)
    times.ns[stage] = ns_[stage].load(std::memory_order_relaxed);
  times.sleeps = sleeps_.load(std::memory_order_relaxed);
  times.rings = rings_.load(std::memory_order_relaxed);
  return times;
}

}  // namespace arcomm::proxy
