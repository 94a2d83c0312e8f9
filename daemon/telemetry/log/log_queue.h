// The bounded queue between those who log and the one who writes. Full means drop and count, never
// wait. Thread: push() from any; take() and finished() by the writer thread.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <mutex>
#include <string>
#include <vector>

namespace arcomm {

class LogQueue {
 public:
  using TimePoint = std::chrono::steady_clock::time_point;

  void set_capacity(std::size_t lines);
  // The last quarter of the queue is kept for audit lines. False: dropped.
  bool push(std::string line, bool is_audit);
  // Up to 64 lines, oldest first; waits for the first until `deadline` or a wake().
  std::vector<std::string> take(TimePoint deadline);
  // The writer has dealt with this many of the lines it took.
  void finished(std::size_t lines);
  void wake();
  // Waits until every line pushed before the call was dealt with.
  bool wait_until_finished(TimePoint deadline);
  // What nobody will write; they count as dealt with.
  std::size_t discard();

 private:
  std::mutex mutex_;  // held for a few moves, never across I/O
  std::condition_variable arrived_, progressed_;
  std::deque<std::string> lines_;
  std::size_t capacity_ = 8192;
  std::uint64_t pushed_ = 0, finished_ = 0;
  bool is_woken_ = false;
};

}  // namespace arcomm
