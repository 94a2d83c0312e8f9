// What this process knows as a whole: where the daemon is and the session with it.
// Thread: any. Lives until the process ends; a lost session is replaced at the next call that needs
// one.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <string>

#include "client/src/session/deadline.h"
#include "client/src/session/deadline_mutex.h"
#include "client/src/session/session.h"
#include "proto/status.h"

namespace arcomm::client {

struct LibraryConfig {
  std::string runtime_dir;
  std::string device;
  std::uint64_t timeout_ms = 0;  // 0: the daemon's
  friend bool operator==(const LibraryConfig&, const LibraryConfig&) = default;
};

class Library {
 public:
  static Library& instance();

  // Empty fields mean the environment, then the default.
  Status init(LibraryConfig config);
  Status finalize();

  // The live session, attaching if there is none. A process that was attached before waits for the
  // daemon to come back; one that never was hears at once that none is running.
  Result<std::shared_ptr<Session>> session(Deadline deadline);
  // Of the daemon, as other daemons know it; "" where it knows none, or does not answer. A process
  // that has not attached has not done so afterwards, either: it may fork.
  std::string peer_address(Deadline deadline);
  // Of operations and control calls; no longer than Deadline::kLongest, whatever was asked. Takes
  // no lock: another thread may be attaching for seconds.
  std::uint64_t timeout_ms() const { return timeout_ms_.load(std::memory_order_relaxed); }
  Deadline control_deadline() { return Deadline::after(std::chrono::milliseconds(timeout_ms())); }

 private:
  // The environment or the default where nothing was asked; bounded where too much was.
  LibraryConfig resolved(LibraryConfig config) const;

  static constexpr std::uint64_t kTimeoutBeforeAttachMs = 10'000;

  std::atomic<std::uint64_t> timeout_ms_{kTimeoutBeforeAttachMs};
  DeadlineMutex mutex_;
  LibraryConfig config_;
  bool configured_ = false;
  int users_ = 0;
  bool was_attached_ = false;
  std::shared_ptr<Session> session_;
};

}  // namespace arcomm::client
