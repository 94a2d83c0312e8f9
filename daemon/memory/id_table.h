// Objects behind typed ids: an index to find them by and a generation to tell a stale id from a
// fresh one. Thread: the owner's. Pointers stay valid until the object is erased; an erased index
// comes back with the next generation, so an old id of it is never found again (until 2^32 reuses
// of one index).
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "proto/types.h"

namespace arcomm {

template <typename T, typename IdType>
class IdTable {
 public:
  // A random first generation keeps ids apart from those of an earlier process.
  explicit IdTable(std::uint32_t first_generation = 1)
      : first_generation_(first_generation == 0 ? 1 : first_generation) {}

  // Which id the next insert() gets.
  IdType next_id() const {
    if (free_.empty()) return {static_cast<std::uint32_t>(slots_.size()), first_generation_};
    const std::uint32_t index = free_.back();
    return {index, slots_[index].generation};
  }

  IdType insert(std::unique_ptr<T> object) {
    if (free_.empty()) {
      free_.push_back(static_cast<std::uint32_t>(slots_.size()));
      slots_.push_back({first_generation_, nullptr});
    }
    const std::uint32_t index = free_.back();
    free_.pop_back();
    slots_[index].object = std::move(object);
    ++size_;
    return {index, slots_[index].generation};
  }

  // Null for an id that is unknown, zero or stale.
  T* find(IdType id) const {
    if (id.index >= slots_.size()) return nullptr;
    const Slot& slot = slots_[id.index];
    return slot.generation == id.generation ? slot.object.get() : nullptr;
  }

  // The id that lives at `index`; an invalid one where none does.
  IdType id_at(std::uint32_t index) const {
    if (index >= slots_.size() || slots_[index].object == nullptr) return {};
    return {index, slots_[index].generation};
  }

  std::unique_ptr<T> erase(IdType id) {
    if (find(id) == nullptr) return nullptr;
    Slot& slot = slots_[id.index];
    if (++slot.generation == 0) slot.generation = 1;  // 0 is never handed out
    free_.push_back(id.index);
    --size_;
    return std::move(slot.object);
  }

  std::size_t size() const { return size_; }

  // Visits all objects; `visit` must not insert or erase.
  template <typename Visit>
  void for_each(Visit visit) const {
    for (std::uint32_t index = 0; index < slots_.size(); ++index) {
      if (slots_[index].object)
        visit(IdType{index, slots_[index].generation}, *slots_[index].object);
    }
  }

 private:
  struct Slot {
    std::uint32_t generation = 0;
    std::unique_ptr<T> object;
  };
  const std::uint32_t first_generation_;
  std::vector<Slot> slots_;
  std::vector<std::uint32_t> free_;
  std::size_t size_ = 0;
};

}  // namespace arcomm
