#include "transport/device/futex.h"

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

}  // namespace

void futex_wait(const Word& word, std::uint32_t seen, std::chrono::nanoseconds timeout) {
  const auto left = std::max(timeout, std::chrono::nanoseconds::zero());
  const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(left);
  const timespec relative{static_cast<time_t>(seconds.count()),
                          static_cast<long>((left - seconds).count())};
  ::syscall(SYS_futex, &word, FUTEX_WAIT_PRIVATE, seen, &relative, nullptr, 0);
}

void futex_wake_all(const Word& word) {
  ::syscall(SYS_futex, &word, FUTEX_WAKE_PRIVATE, INT_MAX, nullptr, nullptr, 0);
}

}  // namespace arcomm
