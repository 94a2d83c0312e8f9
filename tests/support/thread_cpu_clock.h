// The CPU time of one thread, to which the process's other threads add nothing. The thread outlives
// it. Thread: any one.
#pragma once

#include <gtest/gtest.h>
#include <pthread.h>
#include <time.h>

#include <chrono>

namespace arcomm::support {

class ThreadCpuClock {
 public:
  explicit ThreadCpuClock(pthread_t thread) {
    EXPECT_EQ(::pthread_getcpuclockid(thread, &clock_), 0);
  }
  std::chrono::nanoseconds now() const {
    timespec used{};
    EXPECT_EQ(::clock_gettime(clock_, &used), 0);
    return std::chrono::seconds(used.tv_sec) + std::chrono::nanoseconds(used.tv_nsec);
  }

 private:
  clockid_t clock_{};
};

}  // namespace arcomm::support
