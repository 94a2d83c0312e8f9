#include "client/src/gpu/posting/memory_starts.h"

#include <algorithm>

namespace arcomm::client {
namespace {

// Its worker naps for 5 ms at most; a rank that has aborted tells it at once.
constexpr std::chrono::milliseconds kDaemonHears{30};

bool reached(std::uint32_t number, std::uint32_t wanted) {
  return static_cast<std::int32_t>(number - wanted) >= 0;
}

}  // namespace

void MemoryStarts::expect(LaunchPath path, std::uint32_t number, std::uint64_t timeout_ns) {
  timeout_ns_.store(std::max(timeout_ns, timeout_ns_.load(std::memory_order_relaxed)),
                    std::memory_order_relaxed);
  paths_[static_cast<std::uint32_t>(path)].last.store(number, std::memory_order_release);
}

void MemoryStarts::take_back(LaunchPath path, std::uint32_t number) {
  paths_[static_cast<std::uint32_t>(path)].last.store(number - 1, std::memory_order_release);
}

// From the moment on that it has been seen under way: what is before it in the stream may last.
bool MemoryStarts::is_late(Waiting& path, const MailboxPath& words, Clock::time_point now) const {
  const std::uint32_t done = done_from(words.done).number;
  if (done != path.done_before || words.posted == done) path.since.reset();
  path.done_before = done;
  if (words.posted == done) return false;
  if (!path.since) path.since = now;
  const std::chrono::nanoseconds most(timeout_ns_.load(std::memory_order_relaxed) + kPostGraceNs);
  return now - *path.since > most;
}

bool MemoryStarts::look_after(Clock::time_point now) {
  std::uint32_t last[kLaunchPaths];
  for (std::uint32_t i = 0; i < kLaunchPaths; ++i)
    last[i] = paths_[i].last.load(std::memory_order_acquire);
  MailboxCounts seen;
  if (!mailbox_->read_counts(*gpu_, seen)) return true;
  bool is_left = true, late = false;
  for (std::uint32_t i = 0; i < kLaunchPaths; ++i) {
    is_left &= reached(seen.passed[i], last[i]);
    if (!reached(done_from(seen.words.paths[i].done).number, last[i]))
      late |= is_late(paths_[i], seen.words.paths[i], now);
  }
  if (is_left) return false;
  if (late && seen.words.closed == 0) {
    const std::uint64_t why =
        to_word(Done{.code = static_cast<std::uint8_t>(ErrorCode::DeadlineExceeded),
                     .reason = static_cast<std::uint8_t>(Reason::Timeout)});
    // Nobody may go on without a word of why.
    if (!gpu_->write(&mailbox_->words()->closed, &why, sizeof(why), kWordsWithin)) return true;
    end();
    over_since_ = now - kDaemonHears;  // it has had all its time
  }
  if (seen.words.closed == 0 && !ended_.load(std::memory_order_acquire)) return true;
  if (!over_since_) over_since_ = now;
  if (now - *over_since_ >= kDaemonHears) let_go(seen.words, last);
  return true;  // the daemon may yet write what had just ended: the next look sees to that
}

void MemoryStarts::let_go(const DeviceMailbox& words, const std::uint32_t (&last)[kLaunchPaths]) {
  for (std::uint32_t i = 0; i < kLaunchPaths; ++i) {
    if (reached(done_from(words.paths[i].done).number, last[i])) continue;
    const std::uint64_t done = to_word(Done{.number = last[i]});
    static_cast<void>(
        gpu_->write(&mailbox_->words()->paths[i].done, &done, sizeof(done), kWordsWithin));
  }
}

}  // namespace arcomm::client
