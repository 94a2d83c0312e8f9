// How a thread waits for what nobody can tell it by a system call in time: it spins, then yields,
// then sleeps on an eventfd. Where its core is given to others it sleeps at once (lost_time.h).
// Counts the time in each, for metrics. Thread: one waits; ring() and times() from any.
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <utility>

#include "proto/status.h"
#include "proto/unique_fd.h"
#include "transport/device/lost_time.h"

namespace arcomm::proxy {

enum class WaitStage : std::uint8_t { Spin, Yield, Sleep };
inline constexpr std::size_t kWaitStages = 3;

struct WaitPolicy {
  // Of waiting in vain. A chunk that goes to a peer and back takes some tens of microseconds.
  std::chrono::nanoseconds spin = std::chrono::microseconds(50);
  std::chrono::nanoseconds yield = std::chrono::microseconds(200);
  // While something is open that cannot ring (a kernel): naps, each twice as long as the one
  // before.
  std::chrono::nanoseconds first_nap = std::chrono::microseconds(20);
  std::chrono::nanoseconds longest_nap = std::chrono::microseconds(500);
  // While nothing is.
  std::chrono::nanoseconds longest_sleep = std::chrono::milliseconds(200);
};

struct WaitTimes {
  std::array<std::uint64_t, kWaitStages> ns{};  // by WaitStage
  std::uint64_t sleeps = 0;
  std::uint64_t rings = 0;  // that took a system call
};

class AdaptiveWait {
 public:
  static Result<std::unique_ptr<AdaptiveWait>> create(WaitPolicy policy);
  // The clock of deadlines.
  static std::uint64_t now_ns() { return LostTime::ns_of(std::chrono::steady_clock::now()); }

  // A look has found something: the next wait begins with spinning.
  void moved();
  struct Around {
    bool is_open = false;                           // naps only
    std::uint64_t deadline_ns = ~std::uint64_t{0};  // sleeps no longer than that
    std::span<const int> descriptors = {};          // wake it, too
  };
  // After a look in vain. Before it sleeps it calls last_look(true), which tells those who may ring
  // that it sleeps and looks again, and sleeps only if that says false; last_look(false) follows.
  void wait(const Around& around, const std::function<bool(bool asleep)>& last_look);

  // Wakes it, if it sleeps or is about to. What was stored before is seen by its next look.
  void ring();
  // The descriptor to write to, for callers that know by other means that it sleeps.
  int descriptor() const { return event_.get(); }

  WaitTimes times() const;

 private:
  AdaptiveWait(WaitPolicy policy, UniqueFd event) : policy_(policy), event_(std::move(event)) {}
  void sleep(const Around& around, std::uint64_t now_ns);
  void count(WaitStage stage, std::uint64_t from_ns, std::uint64_t to_ns);

  WaitPolicy policy_;
  UniqueFd event_;
  LostTime lost_;
  std::uint64_t idle_since_ns_ = 0;  // 0: the last look found something
  std::chrono::nanoseconds nap_{0};
  std::array<std::atomic<std::uint64_t>, kWaitStages> ns_{};
  std::atomic<std::uint64_t> sleeps_{0}, rings_{0};
  alignas(64) std::atomic<std::uint32_t> asleep_{0};
};

}  // namespace arcomm::proxy
