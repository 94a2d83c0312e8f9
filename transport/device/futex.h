// Sleeping on a word of this process until it changes. Any thread.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>

namespace arcomm {

// Returns when the word is not `seen`, somebody woke it, `timeout` passed, or for no reason at all.
void futex_wait(const std::atomic<std::uint32_t>& word, std::uint32_t seen,
                std::chrono::nanoseconds timeout);
void futex_wake_all(const std::atomic<std::uint32_t>& word);

}  // namespace arcomm
