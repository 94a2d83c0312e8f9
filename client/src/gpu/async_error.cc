#include "client/src/gpu/async_error.h"

#include <chrono>
#include <thread>

#include "client/src/session/deadline.h"

namespace arcomm::client {
namespace {

// The daemon looks at what clients launch every 5 ms at least.
constexpr std::chrono::milliseconds kVerdictWithin{20};

Done done_of(const Error& why) {
  return {.code = static_cast<std::uint8_t>(why.code),
          .reason = static_cast<std::uint8_t>(why.reason),
          .culprit_rank = static_cast<std::int16_t>(why.rank)};
}

}  // namespace

Status AsyncError::usable() const {
  if (!is_over_.load(std::memory_order_acquire)) return {};
  const std::lock_guard lock(mutex_);
  return *why_;
}

// Under the mutex.
void AsyncError::end(const Error& why) {
  if (!why_) why_ = why;
  is_over_.store(true, std::memory_order_release);
}

void AsyncError::close(const Error& why) {
  const std::lock_guard lock(mutex_);
  end(why);
  if (is_closed_) return;
  // A GPU that does not take the word in time is asked again by the next call that notices.
  const std::uint64_t word = to_word(done_of(why));
  is_closed_ = gpu_->write(&mailbox_->words()->closed, &word, sizeof(word), kWordsWithin).ok();
}

// A kernel knows for whom it waited; the daemon, which sees all communicators, may know why.
void AsyncError::await_verdict(DeviceMailbox& now) const {
  const Deadline deadline = Deadline::after(kVerdictWithin);
  while (now.closed == 0 && !deadline.passed()) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    const std::uint64_t* const closed = &mailbox_->words()->closed;
    if (!gpu_->read(&now.closed, closed, sizeof(now.closed), deadline.left())) return;
  }
}

Error AsyncError::look() {
  {
    const std::lock_guard lock(mutex_);
    if (why_) return *why_;
  }
  DeviceMailbox now;
  if (Status read = gpu_->read(&now, mailbox_->words(), sizeof(now), kWordsWithin); !read) {
    const bool is_late = read.error().code == ErrorCode::DeadlineExceeded;
    return is_late ? Error{ErrorCode::Ok, Reason::None, "", -1} : std::move(read).error();
  }
  const bool has_waited = done_from(now.failed).code != 0 &&
                          reason_from(done_from(now.failed).reason) == Reason::Timeout;
  if (has_waited) await_verdict(now);
  Error said = error_of(now.failed, "an operation did not end well");
  if (has_waited && reason_from(done_from(now.closed).reason) == Reason::Crossed)
    said = error_of(now.closed, "the communicator is over");
  if (said.code == ErrorCode::Ok) said = error_of(now.closed, "the communicator is over");
  if (said.code == ErrorCode::Ok) return said;
  const std::lock_guard lock(mutex_);
  end(said);
  return said;
}

}  // namespace arcomm::client
