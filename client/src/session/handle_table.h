// Handles that a caller may pass in any state: live, destroyed or invented. A handle is an index
// and a generation dressed as a pointer; it is looked up and never dereferenced. Thread: any;
// find() takes a shared lock. Ownership: the table and whoever holds a found reference.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <shared_mutex>
#include <utility>
#include <vector>

namespace arcomm::client {

template <typename Object>
class HandleTable {
 public:
  // Never 0. Bit pattern: generation << 24 | index << 4 | 0x8, so that it is no address of anyone.
  std::uintptr_t insert(std::shared_ptr<Object> object) {
    const std::unique_lock lock(mutex_);
    std::uint32_t index = 0;
    while (index < slots_.size() && slots_[index].object) ++index;
    if (index == slots_.size()) slots_.emplace_back();
    Slot& slot = slots_[index];
    slot.object = std::move(object);
    slot.generation = (slot.generation + 1) & kGenerationMask;
    note_change();
    return encode(index, slot.generation);
  }

  std::shared_ptr<Object> find(std::uintptr_t handle) const {
    const std::shared_lock lock(mutex_);
    const Slot* slot = at(handle);
    return slot != nullptr ? slot->object : nullptr;
  }

  // Null when it was not there: of two callers one gets it.
  std::shared_ptr<Object> take(std::uintptr_t handle) {
    const std::unique_lock lock(mutex_);
    Slot* slot = const_cast<Slot*>(at(handle));
    note_change();
    return slot != nullptr ? std::exchange(slot->object, nullptr) : nullptr;
  }

  // Grows with whatever a handle came to name or names no more, so that what was found may be kept
  // as long as this is what it was before the search.
  std::uint64_t changes() const { return changes_.load(std::memory_order_acquire); }
  // What an object stands for is another thing now.
  void note_change() { changes_.fetch_add(1, std::memory_order_release); }

 private:
  struct Slot {
    std::shared_ptr<Object> object;
    std::uint64_t generation = 0;
  };
  static constexpr std::uint64_t kIndexMask = (1u << 20) - 1;
  static constexpr std::uint64_t kGenerationMask = (std::uint64_t{1} << 39) - 1;

  static std::uintptr_t encode(std::uint64_t index, std::uint64_t generation) {
    return (generation << 24) | (index << 4) | 0x8;
  }
  const Slot* at(std::uintptr_t handle) const {
    const std::uint64_t index = (handle >> 4) & kIndexMask;
    if ((handle & 0xf) != 0x8 || index >= slots_.size()) return nullptr;
    const Slot& slot = slots_[index];
    return slot.object && encode(index, slot.generation) == handle ? &slot : nullptr;
  }

  mutable std::shared_mutex mutex_;
  std::vector<Slot> slots_;
  std::atomic<std::uint64_t> changes_{0};
};

}  // namespace arcomm::client
