#include "proto/futex.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <climits>
#include <ctime>

namespace arcomm {
namespace {

using Word = std::atomic<std::uint32_t>;
static_assert(sizeof(Word) == 4 && Word::is_always_lock_free, "a futex is a 32-bit word");

void futex(const Word& word, int operation, std::uint32_t value, const timespec* timeout,
           FutexScope scope) {
  if (scope == FutexScope::Process) operation |= FUTEX_PRIVATE_FLAG;
  // EAGAIN, EINTR and ETIMEDOUT all mean: look at the word again.
  ::syscall(SYS_futex, &word, operation, value, timeout, nullptr, 0);
}

}  // namespace

void futex_wait(const Word& word, std::uint32_t seen, std::chrono::nanoseconds timeout,
                FutexScope scope) {
  const auto left = std::max(timeout, std::chrono::nanoseconds::zero());
  const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(left);
  const timespec relative{static_cast<time_t>(seconds.count()),
                          static_cast<long>((left - seconds).count())};
  futex(word, FUTEX_WAIT, seen, &relative, scope);
}

void futex_wake_one(const Word& word, FutexScope scope) {
  futex(word, FUTEX_WAKE, 1, nullptr, scope);
}

void futex_wake_all(const Word& word, FutexScope scope) {
  futex(word, FUTEX_WAKE, INT_MAX, nullptr, scope);
}

}  // namespace arcomm
