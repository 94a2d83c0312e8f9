// The reading end of one SPSC ring. One thread at a time.
#pragma once

#include <atomic>
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
  explicit Consumer(RingView<Slot> view)
      : view_(view), head_(view.indices->head.load(std::memory_order_relaxed)), tail_(head_) {}

  // Copies the next slot out, once, into memory that the other side cannot reach. What is in it is
  // still untrusted.
  Pop pop(Slot& out) {
    if (head_ == tail_) {
      const Pop seen = look();
      if (seen != Pop::Done) return seen;
    }
    copy_once(out, view_.slots[head_ & (view_.count - 1)]);
    if (out.slot_seq != head_ + 1) return Pop::Corrupt;
    ++head_;
    view_.indices->head.store(head_,
                              std::memory_order_release);  // pairs with Producer's acquire of head
    return Pop::Done;
  }

  // Is there something to pop? Reads shared memory only when the last look found nothing more.
  Pop peek() { return head_ != tail_ ? Pop::Done : look(); }

  std::uint64_t position() const { return head_; }

 private:
  Pop look() {
    const std::uint64_t tail =
        view_.indices->tail.load(std::memory_order_acquire);  // pairs with push's release
    if (tail - head_ > view_.count) return Pop::Corrupt;      // jumped ahead or went back
    tail_ = tail;
    return head_ == tail_ ? Pop::Empty : Pop::Done;
  }

  // A plain struct copy would let the compiler read a field twice later; a copy through a barrier
  // cannot be undone.
  static void copy_once(Slot& out, const Slot& slot) {
    std::memcpy(&out, &slot, sizeof(Slot));
    std::atomic_signal_fence(std::memory_order_acq_rel);
    asm volatile("" : : "r"(&out) : "memory");
  }

  RingView<Slot> view_;
  std::uint64_t head_;  // authoritative copy
  std::uint64_t tail_;  // as last seen
};

}  // namespace arcomm::ring
