// Preloaded into a process, steps its wall clock forward and back by an hour, four times a second.
// CLOCK_MONOTONIC is the real one: only a program that measures time by the wall clock notices.
#include <dlfcn.h>
#include <sys/time.h>
#include <time.h>

namespace {

constexpr time_t kHour = 3600;

using ClockGettime = int (*)(clockid_t, timespec*);

ClockGettime real_clock_gettime() {
  static const auto found = reinterpret_cast<ClockGettime>(::dlsym(RTLD_NEXT, "clock_gettime"));
  return found;
}

time_t step() {
  timespec now{};
  real_clock_gettime()(CLOCK_MONOTONIC, &now);
  switch ((now.tv_sec * 4 + now.tv_nsec / 250'000'000) % 3) {
    case 0:
      return 0;
    case 1:
      return kHour;
    default:
      return -kHour;
  }
}

timespec stepped() {
  timespec now{};
  real_clock_gettime()(CLOCK_REALTIME, &now);
  now.tv_sec += step();
  return now;
}

}  // namespace

extern "C" {

__attribute__((visibility("default"))) int clock_gettime(clockid_t clock, timespec* out) {
  if (clock != CLOCK_REALTIME && clock != CLOCK_REALTIME_COARSE)
    return real_clock_gettime()(clock, out);
  *out = stepped();
  return 0;
}

__attribute__((visibility("default"))) int gettimeofday(timeval* __restrict out, void* __restrict) {
  const timespec now = stepped();
  *out = timeval{now.tv_sec, now.tv_nsec / 1000};
  return 0;
}

__attribute__((visibility("default"))) time_t time(time_t* out) {
  const time_t now = stepped().tv_sec;
  if (out != nullptr) *out = now;
  return now;
}

}  // extern "C"
