// Which object covers a range of addresses: disjoint half-open ranges in a sorted array.
// Thread: any; lookups share a lock and allocate nothing.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <mutex>
#include <shared_mutex>
#include <utility>
#include <vector>

namespace arcomm::client {

template <typename Object>
class IntervalMap {
 public:
  // False, and nothing changes, when [begin, begin + bytes) meets a range that is there already.
  bool insert(std::uintptr_t begin, std::uintptr_t bytes, std::shared_ptr<Object> object) {
    const std::unique_lock lock(mutex_);
    const auto after = first_after(begin);
    if (after != entries_.end() && after->begin - begin < bytes) return false;
    if (after != entries_.begin() && begin - std::prev(after)->begin < std::prev(after)->bytes)
      return false;
    entries_.insert(after, Entry{begin, bytes, std::move(object)});
    return true;
  }

  // The object whose range holds all of [begin, begin + bytes), or null.
  std::shared_ptr<Object> find(std::uintptr_t begin, std::uintptr_t bytes) const {
    const std::shared_lock lock(mutex_);
    auto entry = const_cast<IntervalMap*>(this)->first_after(begin);
    if (entry == entries_.begin()) return nullptr;
    --entry;
    const std::uintptr_t offset = begin - entry->begin;
    return offset <= entry->bytes && bytes <= entry->bytes - offset ? entry->object : nullptr;
  }

  std::shared_ptr<Object> starting_at(std::uintptr_t begin) const {
    const std::shared_lock lock(mutex_);
    auto entry = const_cast<IntervalMap*>(this)->first_after(begin);
    if (entry == entries_.begin() || std::prev(entry)->begin != begin) return nullptr;
    return std::prev(entry)->object;
  }

  bool erase(std::uintptr_t begin) {
    const std::unique_lock lock(mutex_);
    const auto after = first_after(begin);
    if (after == entries_.begin() || std::prev(after)->begin != begin) return false;
    entries_.erase(std::prev(after));
    return true;
  }

 private:
  struct Entry {
    std::uintptr_t begin = 0, bytes = 0;
    std::shared_ptr<Object> object;
  };
  typename std::vector<Entry>::iterator first_after(std::uintptr_t address) {
    return std::upper_bound(
        entries_.begin(), entries_.end(), address,
        [](std::uintptr_t value, const Entry& entry) { return value < entry.begin; });
  }

  mutable std::shared_mutex mutex_;
  std::vector<Entry> entries_;
};

}  // namespace arcomm::client
