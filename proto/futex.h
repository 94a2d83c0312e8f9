// Sleeping on a word until it changes. Any thread, nothing owned.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>

namespace arcomm {

// Who may sleep on the word: threads of this process, or of every process that maps it. The first
// costs the kernel less.
enum class FutexScope : std::uint8_t { Process, SharedMemory };

// Returns when the word is not `seen`, somebody woke it, `timeout` passed, or for no reason at all.
void futex_wait(const std::atomic<std::uint32_t>& word, std::uint32_t seen,
                std::chrono::nanoseconds timeout, FutexScope scope);
void futex_wake_one(const std::atomic<std::uint32_t>& word, FutexScope scope);
void futex_wake_all(const std::atomic<std::uint32_t>& word, FutexScope scope);

}  // namespace arcomm
