// The CPU's way to the words of proto/gpu/device_fifo.h, for both of its sides: the proxy, and the
// host twin that stands in for a kernel. Orders and partners as that header draws them. Any thread.
#pragma once

#include <atomic>
#include <cstdint>

#include "proto/gpu/device_fifo.h"

namespace arcomm::proxy {

inline std::uint64_t load_acquire(std::uint64_t& word) {
  return std::atomic_ref(word).load(std::memory_order_acquire);
}
inline void store_release(std::uint64_t& word, std::uint64_t value) {
  std::atomic_ref(word).store(value, std::memory_order_release);
}

// Once, and whole words: what the other side stores meanwhile is seen in the copy or never. Behind
// the acquire of the size word that is given.
inline FifoEntry copy_entry(FifoEntry& from, std::uint64_t size_word) {
  FifoEntry copy{};
  copy.size_word = size_word;
  copy.sequence = std::atomic_ref(from.sequence).load(std::memory_order_relaxed);
  copy.offset = std::atomic_ref(from.offset).load(std::memory_order_relaxed);
  copy.address = std::atomic_ref(from.address).load(std::memory_order_relaxed);
  copy.mode = std::atomic_ref(from.mode).load(std::memory_order_relaxed);
  return copy;
}

// All but the size word, which is the caller's to release when all else of the step is stored.
inline void store_entry(FifoEntry& to, const FifoEntry& entry) {
  std::atomic_ref(to.sequence).store(entry.sequence, std::memory_order_relaxed);
  std::atomic_ref(to.offset).store(entry.offset, std::memory_order_relaxed);
  std::atomic_ref(to.address).store(entry.address, std::memory_order_relaxed);
  std::atomic_ref(to.mode).store(entry.mode, std::memory_order_relaxed);
}

}  // namespace arcomm::proxy
