// The writing end of one SPSC ring. One thread at a time; the other end is a Consumer, usually in
// another process.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "proto/ring/layout.h"

namespace arcomm::ring {

template <typename Slot>
struct RingView {
  ConsumerLines* consumer = nullptr;  // shared
  Slot* slots = nullptr;              // shared
  std::uint32_t count = 0;            // slots, a power of two; this side's own copy
};

enum class Push : std::uint8_t {
  Done,
  Full,
  Corrupt,  // the consumer's index left [tail - slots, tail]: stop using this ring
};

template <typename Slot>
class Producer {
 public:
  // Both ends start at position 0: a session's segment is new when its ends are made. (Tests begin
  // where so many messages have gone before.)
  explicit Producer(RingView<Slot> view, std::uint64_t position = 0)
      : view_(view), tail_(position), head_(position) {}

  // Copies `value` into the next slot and publishes it. Never blocks. Waking the consumer is the
  // caller's business: see doorbell.h.
  Push push(const Slot& value) {
    if (tail_ - head_ >= view_.count) {
      if (const Push room = refresh(); room != Push::Done) return room;
    }
    publish(next(), value, stamp_of(tail_, view_.count));
    ++tail_;
    // The next message's line is fetched for writing now, while nobody waits for it.
    __builtin_prefetch(&next(), 1);
    return Push::Done;
  }

  // Looks at the consumer's index again, whether or not the ring seems full. Done: there is room.
  Push refresh() {
    head_ = view_.consumer->head.load(
        std::memory_order_acquire);                         // pairs with Consumer's release of head
    if (tail_ - head_ > view_.count) return Push::Corrupt;  // also when head ran past tail
    return tail_ - head_ == view_.count ? Push::Full : Push::Done;
  }

  // Slots known to be free without looking at shared memory again; at least one means push()
  // succeeds.
  std::uint32_t known_free() const {
    return view_.count - static_cast<std::uint32_t>(tail_ - head_);
  }
  std::uint64_t position() const { return tail_; }

 private:
  // Everything but the stamp, and then the stamp: whoever sees it sees the rest.
  static void publish(Slot& slot, const Slot& value, std::uint64_t stamp) {
    constexpr std::size_t kStampAt = offsetof(Slot, stamp);
    constexpr std::size_t kAfterStamp = kStampAt + sizeof(stamp);
    auto* to = reinterpret_cast<std::byte*>(&slot);
    const auto* from = reinterpret_cast<const std::byte*>(&value);
    std::memcpy(to, from, kStampAt);
    std::memcpy(to + kAfterStamp, from + kAfterStamp, kCacheLineBytes - kAfterStamp);
    if (value.uses_second_line()) {
      std::memcpy(to + kCacheLineBytes, from + kCacheLineBytes, sizeof(Slot) - kCacheLineBytes);
    }
    std::atomic_ref(slot.stamp).store(stamp, std::memory_order_release);  // pairs with peek()
  }

  Slot& next() { return view_.slots[tail_ & (view_.count - 1)]; }

  RingView<Slot> view_;
  std::uint64_t tail_ = 0;  // kept here only: slots say what was published
  std::uint64_t head_ = 0;  // as last seen
};

}  // namespace arcomm::ring
