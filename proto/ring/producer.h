// The writing end of one SPSC ring. One thread at a time; the other end is a Consumer, usually in
// another process.
#pragma once

#include <atomic>
#include <cstdint>

#include "proto/ring/layout.h"

namespace arcomm::ring {

template <typename Slot>
struct RingView {
  Indices* indices = nullptr;  // shared
  Slot* slots = nullptr;       // shared
  std::uint32_t count = 0;     // slots, a power of two; this side's own copy
};

enum class Push : std::uint8_t {
  Done,
  Full,
  Corrupt,  // the consumer's index left [tail - slots, tail]: stop using this ring
};

template <typename Slot>
class Producer {
 public:
  explicit Producer(RingView<Slot> view)
      : view_(view), tail_(view.indices->tail.load(std::memory_order_relaxed)), head_(tail_) {
    head_ = view.indices->head.load(std::memory_order_acquire);
  }

  // Copies `value` into the next slot and publishes it. Never blocks. Waking the consumer is the
  // caller's business: see doorbell.h.
  Push push(const Slot& value) {
    if (tail_ - head_ >= view_.count) {
      head_ = view_.indices->head.load(
          std::memory_order_acquire);  // pairs with Consumer's release of head
      if (tail_ - head_ > view_.count) return Push::Corrupt;  // also when head ran past tail
      if (tail_ - head_ == view_.count) return Push::Full;
    }
    Slot& slot = view_.slots[tail_ & (view_.count - 1)];
    slot = value;
    slot.slot_seq = tail_ + 1;
    ++tail_;
    view_.indices->tail.store(tail_,
                              std::memory_order_release);  // pairs with Consumer's acquire of tail
    return Push::Done;
  }

  // Looks at the consumer's index again, whether or not the ring seems full. Done: there is room.
  Push refresh() {
    head_ = view_.indices->head.load(
        std::memory_order_acquire);  // pairs with Consumer's release of head
    if (tail_ - head_ > view_.count) return Push::Corrupt;
    return tail_ - head_ == view_.count ? Push::Full : Push::Done;
  }

  // Slots known to be free without looking at shared memory again; at least one means push()
  // succeeds.
  std::uint32_t known_free() const {
    return view_.count - static_cast<std::uint32_t>(tail_ - head_);
  }
  std::uint64_t position() const { return tail_; }

 private:
  RingView<Slot> view_;
  std::uint64_t tail_;  // authoritative copy: shared memory is only told
  std::uint64_t head_;  // as last seen
};

}  // namespace arcomm::ring
