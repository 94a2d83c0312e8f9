#include "client/src/memory_starts.h"

#include <algorithm>

namespace arcomm::client {
namespace {

bool reached(std::uint32_t number, std::uint32_t wanted) {
  return static_cast<std::int32_t>(number - wanted) >= 0;
}

}  // namespace

void MemoryStarts::expect(Lane lane, std::uint32_t number, std::uint64_t timeout_ns) {
  timeout_ns_.store(std::max(timeout_ns, timeout_ns_.load(std::memory_order_relaxed)),
                    std::memory_order_relaxed);
  lanes_[static_cast<std::uint32_t>(lane)].last.store(number, std::memory_order_release);
}

void MemoryStarts::take_back(Lane lane, std::uint32_t number) {
  lanes_[static_cast<std::uint32_t>(lane)].last.store(number - 1, std::memory_order_release);
}

// From the moment on that it has been seen under way: what is before it in the stream may last.
bool MemoryStarts::is_late(Waiting& lane, const MailboxLane& words, Clock::time_point now) const {
  const std::uint32_t done = done_from(words.done).number;
  if (done != lane.done_before || words.posted == done) lane.since.reset();
  lane.done_before = done;
  if (words.posted == done) return false;
  if (!lane.since) lane.since = now;
  const std::chrono::nanoseconds most(timeout_ns_.load(std::memory_order_relaxed) + kPostGraceNs);
  return now - *lane.since > most;
}

bool MemoryStarts::look_after(Clock::time_point now) {
  std::uint32_t last[kLanes];
  for (std::uint32_t i = 0; i < kLanes; ++i)
    last[i] = lanes_[i].last.load(std::memory_order_acquire);
  DeviceMailbox words;
  if (!gpu_->read(&words, mailbox_->words(), sizeof(words), kWordsWithin)) return true;
  bool waits = false, late = false;
  for (std::uint32_t i = 0; i < kLanes; ++i) {
    if (reached(done_from(words.lanes[i].done).number, last[i])) continue;
    waits = true;
    late |= is_late(lanes_[i], words.lanes[i], now);
  }
  if (!waits) return false;
  if (late && words.closed == 0) {
    const std::uint64_t why =
        to_word(Done{.code = static_cast<std::uint8_t>(ErrorCode::DeadlineExceeded),
                     .reason = static_cast<std::uint8_t>(Reason::Timeout)});
    words.closed = why;
    static_cast<void>(gpu_->write(&mailbox_->words()->closed, &why, sizeof(why), kWordsWithin));
    end();
  }
  if (words.closed != 0 || ended_.load(std::memory_order_acquire)) let_go(words, last);
  return true;  // the daemon may yet write what had just ended: the next look sees to that
}

void MemoryStarts::let_go(const DeviceMailbox& words, const std::uint32_t (&last)[kLanes]) {
  for (std::uint32_t i = 0; i < kLanes; ++i) {
    if (reached(done_from(words.lanes[i].done).number, last[i])) continue;
    const std::uint64_t done = to_word(Done{.number = last[i]});
    static_cast<void>(
        gpu_->write(&mailbox_->words()->lanes[i].done, &done, sizeof(done), kWordsWithin));
  }
}

}  // namespace arcomm::client
