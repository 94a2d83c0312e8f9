// A block of a kernel as a coroutine: straight code that waits where the kernel waits, and gives
// way there and wherever else another order of events is worth trying. Whoever owns it resumes it:
// a thread of its own in a loop, or a scheduler that decides whose turn it is.
// Thread: one at a time.
#pragma once

#include <coroutine>
#include <cstdint>
#include <exception>
#include <utility>

#include "proto/status.h"

namespace arcomm::proxy {

class HostBlock {
 public:
  // What a block waits for. Lives in its frame for as long as it does.
  class Awaited {
   public:
    // It has come, or the budget is used up: the block may be resumed.
    virtual bool is_over() = 0;

   protected:
    ~Awaited() = default;
  };

  struct promise_type {  // NOLINT(readability-identifier-naming): the language's name
    Awaited* awaited = nullptr;
    ErrorCode verdict = ErrorCode::Unknown;

    HostBlock get_return_object() {
      return HostBlock(std::coroutine_handle<promise_type>::from_promise(*this));
    }
    std::suspend_always initial_suspend() noexcept { return {}; }
    std::suspend_always final_suspend() noexcept { return {}; }
    void return_value(ErrorCode code) { verdict = code; }
    void unhandled_exception() { std::terminate(); }
  };

  HostBlock(HostBlock&& other) noexcept : handle_(std::exchange(other.handle_, nullptr)) {}
  HostBlock& operator=(HostBlock&& other) noexcept {
    std::swap(handle_, other.handle_);
    return *this;
  }
  ~HostBlock() {
    if (handle_) handle_.destroy();
  }

  bool has_ended() const { return handle_.done(); }
  // Ok: it did its whole part. Precondition: it has ended.
  ErrorCode verdict() const { return handle_.promise().verdict; }
  // One look at what it waits for, and on to the next wait if that has come. True: it moved.
  bool resume() {
    promise_type& promise = handle_.promise();
    if (handle_.done() || (promise.awaited != nullptr && !promise.awaited->is_over())) return false;
    promise.awaited = nullptr;
    handle_.resume();
    return true;
  }

 private:
  explicit HostBlock(std::coroutine_handle<promise_type> handle) : handle_(handle) {}

  std::coroutine_handle<promise_type> handle_;
};

// co_await Turn{}: others may come first.
using Turn = std::suspend_always;

}  // namespace arcomm::proxy
