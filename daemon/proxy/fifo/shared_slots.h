// The pool of Offset mode: memory cut into equal slots that several FIFOs use in turn. A FIFO that
// joined can always have its share of them, and never more, so that one whose kernel stands still
// holds up nobody else. Thread: the proxy's.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "proto/gpu/device_fifo.h"

namespace arcomm::proxy {

class SharedSlots {
 public:
  // `memory` outlives this; what is left behind the last whole slot is not used.
  SharedSlots(std::span<std::byte> memory, std::uint32_t slot_bytes, std::uint32_t most_users)
      : memory_(memory), slot_bytes_(slot_bytes), most_users_(most_users) {
    const std::size_t slots = memory.size() / slot_bytes;
    share_ = std::min<std::uint64_t>(kFifoSteps, slots / most_users);
    free_.reserve(slots);
    for (std::size_t slot = slots; slot-- > 0;) free_.push_back(slot * slot_bytes);
  }

  // False: no share is left.
  bool join() {
    if (users_ == most_users_ || share_ == 0) return false;
    ++users_;
    return true;
  }
  void leave() { --users_; }
  // How many slots each may hold: what an algorithm may have on its way before it consumes.
  std::uint64_t share() const { return share_; }

  std::optional<std::uint64_t> take() {
    if (free_.empty()) return std::nullopt;
    const std::uint64_t offset = free_.back();
    free_.pop_back();
    return offset;
  }
  void give(std::uint64_t offset) { free_.push_back(offset); }

  std::span<std::byte> memory() const { return memory_; }
  std::uint32_t slot_bytes() const { return slot_bytes_; }
  std::size_t free_slots() const { return free_.size(); }

 private:
  std::span<std::byte> memory_;
  std::uint32_t slot_bytes_;
  std::uint32_t most_users_;
  std::uint32_t users_ = 0;
  std::uint64_t share_ = 0;
  std::vector<std::uint64_t> free_;  // offsets
};

}  // namespace arcomm::proxy
