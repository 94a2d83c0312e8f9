// Objects that are taken and given back all the time, without the allocator: memory is fetched in
// chunks and kept. Thread: the owner's. T is default-constructed once per object; take() hands out
// whatever give() left in it, so the taker resets it. Pointers stay valid as long as the pool.
#pragma once

#include <cstddef>
#include <deque>
#include <vector>

namespace arcomm {

template <typename T>
class Pool {
 public:
  explicit Pool(std::size_t chunk) : chunk_(chunk) { grow(); }
  Pool(const Pool&) = delete;
  Pool& operator=(const Pool&) = delete;

  T* take() {
    if (free_.empty()) grow();
    T* object = free_.back();
    free_.pop_back();
    return object;
  }
  void give(T* object) { free_.push_back(object); }
  std::size_t taken() const { return objects_.size() - free_.size(); }

 private:
  void grow() {
    const std::size_t first = objects_.size();
    objects_.resize(first + chunk_);  // a deque: growing at the end moves nothing
    free_.reserve(objects_.size());
    for (std::size_t i = objects_.size(); i > first; --i) free_.push_back(&objects_[i - 1]);
  }

  std::size_t chunk_;
  std::deque<T> objects_;
  std::vector<T*> free_;
};

}  // namespace arcomm
