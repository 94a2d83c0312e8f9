// Waking a consumer that sleeps, and only then: a look at its flag costs nanoseconds, a system call
// 250 of them.
//
// The protocol, both ways (Dekker's, hence the two full fences):
//   consumer: flag = 1;  fence;  ring still empty? -> sleep;  flag = 0
//   producer: publish;   fence;  flag == 1?        -> flag = 0, wake
// A hostile writer of the flag can cost its own session a wake-up or the other side a spurious one,
// nothing more.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>

#include "proto/status.h"
#include "proto/unique_fd.h"

namespace arcomm::ring {

// The producer's fence of the protocol above.
void order_published();

// The flag is the futex: for a consumer with one ring to watch (a client waiting for completions).
// At most one of its threads sleeps at a time: ring() wakes one, so that a client with a crowd of
// sleepers delays nobody else's.
class FutexDoorbell {
 public:
  explicit FutexDoorbell(std::atomic<std::uint32_t>& flag) : flag_(&flag) {}

  void arm();     // before the last look at the ring
  void disarm();  // when that look found something, or after waking
  // Sleeps until rung or `timeout`; returns at once when rung since arm(). May wake spuriously.
  void sleep(std::chrono::nanoseconds timeout);
  // Called by the producer after publishing. Returns whether a system call was needed.
  bool ring();
  // The same for a producer that has published to many rings and then called order_published() once
  // for all of them: the fence waits for its stores to reach the other cores.
  bool ring_in_order();
  // Wakes every sleeper, armed or not: for state changes that are not in the ring.
  void ring_all();

 private:
  std::atomic<std::uint32_t>* flag_;
};

// The wake-up is an eventfd: for a consumer that sleeps in epoll over many rings (a device worker).
class EventDoorbell {
 public:
  static Result<UniqueFd> create();  // non-blocking, close-on-exec

  // The descriptor stays the caller's.
  EventDoorbell(std::atomic<std::uint32_t>& flag, int event_fd)
      : flag_(&flag), event_fd_(event_fd) {}

  void arm();
  void disarm();
  bool ring();
  void drain();  // after epoll reported the descriptor

 private:
  std::atomic<std::uint32_t>* flag_;
  int event_fd_;
};

}  // namespace arcomm::ring
