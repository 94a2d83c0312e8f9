#include "tests/support/watchdog.h"

#include <cstdio>
#include <cstdlib>
#include <utility>

namespace arcomm::support {

Watchdog::Watchdog(std::string what, std::chrono::seconds limit)
    : what_(std::move(what)), thread_([this, limit] {
        std::unique_lock lock(mutex_);
        if (changed_.wait_for(lock, limit, [this] { return done_; })) return;
        std::fprintf(stderr, "watchdog: %s did not end within %lld s\n", what_.c_str(),
                     static_cast<long long>(limit.count()));
        std::abort();
      }) {}

Watchdog::~Watchdog() {
  {
    const std::lock_guard lock(mutex_);
    done_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

}  // namespace arcomm::support
