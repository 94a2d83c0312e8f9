// The reading end of one SPSC ring. One thread at a time.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "proto/ring/layout.h"
#include "proto/ring/producer.h"

namespace arcomm::ring {

enum class Pop : std::uint8_t {
  Done,
  Empty,
  Corrupt,  // an index left its bounds or a slot does not carry its position: stop using this ring
};

template <typename Slot>
class Consumer {
 public:
  // Both ends start at position 0: a session's segment is new when its ends are made. (Tests begin
  // where so many messages have gone before.)
  explicit Consumer(RingView<Slot> view, std::uint64_t position = 0)
      : view_(view), head_(position) {}

  // Copies the next slot out, once, into memory that the other side cannot reach. What is in it is
  // still untrusted.
  Pop pop(Slot& out) {
    if (const Pop seen = peek(); seen != Pop::Done) return seen;
    copy_once(out, next());
    if (out.stamp != stamp_of(head_, view_.count)) return Pop::Corrupt;  // rewritten since peek()
    ++head_;
    view_.consumer->head.store(head_,
                               std::memory_order_release);  // pairs with Producer's acquire of head
    return Pop::Done;
  }

  // Is there something to pop?
  Pop peek() {
    const std::uint64_t stamp =
        std::atomic_ref(next().stamp).load(std::memory_order_acquire);  // pairs with publish()
    if (stamp == stamp_of(head_, view_.count)) return Pop::Done;
    return stamp == stamp_before(head_) ? Pop::Empty : Pop::Corrupt;
  }

  // Of many rings, before any is popped: what lies in another core's cache then comes at once, not
  // one ring after the other. The second line only of a slot that is there: its writer has it.
  void fetch_ahead() {
    if (peek() == Pop::Done)
      __builtin_prefetch(reinterpret_cast<const std::byte*>(&next()) + kCacheLineBytes);
  }

  std::uint64_t position() const { return head_; }

 private:
  Slot& next() { return view_.slots[head_ & (view_.count - 1)]; }

  // A plain struct copy would let the compiler read a field twice later; a copy through a barrier
  // cannot be undone. The copy decides whether there is a second line to copy.
  static void copy_once(Slot& out, const Slot& slot) {
    auto* to = reinterpret_cast<std::byte*>(&out);
    const auto* from = reinterpret_cast<const std::byte*>(&slot);
    constexpr std::size_t kRest = sizeof(Slot) - kCacheLineBytes;
    std::memcpy(to, from, kCacheLineBytes);
    std::atomic_signal_fence(std::memory_order_acq_rel);
    asm volatile("" : : "r"(to) : "memory");
    if (out.uses_second_line()) {
      std::memcpy(to + kCacheLineBytes, from + kCacheLineBytes, kRest);
      std::atomic_signal_fence(std::memory_order_acq_rel);
      asm volatile("" : : "r"(to) : "memory");
    } else {
      std::memset(to + kCacheLineBytes, 0, kRest);
    }
  }

  RingView<Slot> view_;
  std::uint64_t head_ = 0;  // authoritative copy
};

}  // namespace arcomm::ring
