#include "daemon/exec/worker/turns/turn_waits.h"

#include <sched.h>

#include <algorithm>

#include "daemon/exec/clock.h"
#include "daemon/telemetry/metrics/metrics.h"
#include "transport/device/pause.h"

namespace arcomm {
namespace {

constexpr std::uint64_t kYieldAfterNs = 3'000;  // of empty turns
constexpr std::uint64_t kLingerNs = 1'000;      // about two switches to another process and back
constexpr std::uint64_t kTileNapNs = 50'000;    // while streams have the last tiles
constexpr std::uint64_t kLongestSleepNs = 500'000'000;  // so that progress() shows life

}  // namespace

std::uint64_t TurnWaits::after_turn(bool worked, std::uint64_t now) {
  Worker& worker = parts_.worker;
  // Where other processes use this core, sleep is the better wait, and a yield the worst.
  const bool sleeps = lost_time_.sleeps(now);
  worker.state().sessions.set_core_is_shared(sleeps);
  if (worked) {
    last_work_ns_ = now;
    has_slept_ = false;
    // Tiles and floods keep this core busy for long, and where all is answered only clients can
    // go on: let one that shares this core take its result or make its next request.
    if (!sleeps && worker.oversubscribed() &&
        (worker.computing() || worker.flooded() || worker.state().pending() == 0)) {
      now = yield(now);
    }
  } else if (worker.computing()) {
    now = await_tiles(now);
  } else if ((sleeps || now - last_work_ns_ >= spin_ns_) && worker.rest_ns(now) != 0) {
    now = waited(rest(now) ? Waiting::Sleep : Waiting::Spin, now);
    parts_.times.slept(now);
  } else if (worker.state().nodes.is_lively(now)) {
    // What it waits for comes over the network, or from a client that has just been answered:
    // either gets this core if it needs one.
    now = yield(now);
  } else if (worker.oversubscribed() &&
             (worker.state().pending() == 0 || now - last_work_ns_ >= kLingerNs)) {
    // At once: the ranks that would make the next request wait for this core. Spinning 3 us first
    // doubled the time of 1 KB over 4 ranks on 2 cores (12.4 instead of 6.3 us). Only where some
    // ranks of an operation have just called are the others worth a short wait: those that share
    // this core have had their turn, so that they run on another.
    now = yield(now);
  } else {
    now = relax(now);
  }
  return now;
}

std::uint64_t TurnWaits::yield(std::uint64_t now) {
  ::sched_yield();
  const std::uint64_t after = waited(Waiting::Yield, now);
  if (!parts_.worker.computing()) lost_time_.paused(now, after);  // else it went to the streams
  return after;
}

std::uint64_t TurnWaits::relax(std::uint64_t now) {
  pause_briefly();
  const std::uint64_t after = waited(Waiting::Spin, now);
  lost_time_.paused(now, after);
  return after;
}

std::uint64_t TurnWaits::await_tiles(std::uint64_t now) {
  // Awake, and leaving them the core. A GPU's end is looked for more often than naps allow.
  if (lost_time_.sleeps(now) && parts_.worker.state().backend->takes_cores()) {
    parts_.doze.sleep(kTileNapNs);
    return waited(Waiting::Sleep, now);
  }
  return now - last_work_ns_ >= kYieldAfterNs ? yield(now) : now;
}

bool TurnWaits::rest(std::uint64_t now) {
  parts_.mailbox.bell().arm();
  const bool is_called = parts_.mailbox.has_some() || parts_.quiesce_turns.has_due() ||
                         parts_.worker.look_at_nodes(now);
  const Worker::Rest rest = is_called ? Worker::Rest::Awake : parts_.worker.arm();
  if (rest != Worker::Rest::Awake) {
    const std::uint64_t deadline = parts_.worker.next_deadline_ns();
    std::uint64_t sleep_ns = deadline > now ? std::min(deadline - now, kLongestSleepNs) : 0;
    if (const std::uint64_t due = parts_.quiesce_turns.next_ns(now); due > now) {
      sleep_ns = std::min(sleep_ns, due - now);
    } else {
      sleep_ns = 0;
    }
    if (rest == Worker::Rest::Nap || parts_.worker.state().nodes.must_be_polled())
      sleep_ns = std::min(sleep_ns, Doze::kNapNs);
    has_slept_ = true;
    parts_.metrics.worker_sleeps.add();
    parts_.doze.sleep(std::min(sleep_ns, parts_.worker.rest_ns(now)));
  }
  parts_.worker.disarm();
  parts_.mailbox.bell().disarm();
  return rest != Worker::Rest::Awake;
}

void TurnWaits::nap() {
  parts_.doze.sleep(kTileNapNs);
}

std::uint64_t TurnWaits::waited(Waiting how, std::uint64_t from) {
  const std::uint64_t now = now_ns();
  parts_.times.waited(how, from, now);
  return now;
}

}  // namespace arcomm
