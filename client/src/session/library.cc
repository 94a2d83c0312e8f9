#include "client/src/session/library.h"

#include <errno.h>  // program_invocation_short_name

#include <algorithm>
#include <cstdlib>
#include <thread>
#include <utility>

namespace arcomm::client {
namespace {

using std::chrono::milliseconds;

constexpr const char* kDefaultRuntimeDir = "/run/arcommd";
constexpr milliseconds kAttachEvery{20};

std::string environment_or(const char* name, const char* otherwise) {
  const char* value = std::getenv(name);
  return value != nullptr && *value != '\0' ? value : otherwise;
}

std::uint64_t bounded(std::uint64_t timeout_ms) {
  return static_cast<std::uint64_t>(Deadline::span_of(timeout_ms).count());
}

// Worth another try when a daemon that was there is being restarted.
bool may_come_back(const Error& why) {
  return why.reason == Reason::NotRunning || why.reason == Reason::DaemonLost ||
         why.reason == Reason::ShuttingDown;
}

Error busy() {
  return error(ErrorCode::DeadlineExceeded, Reason::Timeout,
               "another thread was still attaching to the daemon");
}

}  // namespace

Library& Library::instance() {
  static auto* library = new Library;  // never destroyed: threads may outlive main
  return *library;
}

LibraryConfig Library::resolved(LibraryConfig config) const {
  if (config.runtime_dir.empty()) {
    config.runtime_dir = environment_or("ARCOMM_RUNTIME_DIR", kDefaultRuntimeDir);
  }
  if (config.device.empty()) config.device = environment_or("ARCOMM_DEVICE", "");
  config.timeout_ms = bounded(config.timeout_ms);
  return config;
}

Status Library::init(LibraryConfig wanted) {
  wanted = resolved(std::move(wanted));
  const Deadline deadline = Deadline::after(
      milliseconds(wanted.timeout_ms != 0 ? wanted.timeout_ms : kTimeoutBeforeAttachMs));
  {
    std::unique_lock lock(mutex_, deadline.when());
    if (!lock) return busy();
    if (users_ > 0 && config_ != wanted) {
      return error(ErrorCode::FailedPrecondition, Reason::BadValue,
                   "arcInit was called before with runtime_dir ", config_.runtime_dir,
                   ", device \"", config_.device, "\", timeout_ms ", config_.timeout_ms,
                   " and now asks for ", wanted.runtime_dir, ", \"", wanted.device, "\", ",
                   wanted.timeout_ms, ": call arcFinalize in between");
    }
    if (configured_ && users_ == 0 && config_ != wanted) {
      if (session_) session_->detach(deadline);
      session_.reset();
      was_attached_ = false;
    }
    config_ = std::move(wanted);
    configured_ = true;
    if (config_.timeout_ms != 0) timeout_ms_.store(config_.timeout_ms, std::memory_order_relaxed);
    ++users_;
  }
  Result<std::shared_ptr<Session>> attached = session(deadline);
  if (attached) return {};
  const std::unique_lock lock(mutex_, deadline.plus(kGuard).when());
  if (lock) --users_;
  return std::move(attached).error();
}

Status Library::finalize() {
  const Deadline deadline = control_deadline();
  std::unique_lock lock(mutex_, deadline.when());
  if (!lock) return busy();
  if (users_ == 0 && !session_) {
    return error(ErrorCode::FailedPrecondition, Reason::BadValue, "arcFinalize without arcInit");
  }
  users_ = std::max(users_ - 1, 0);
  if (users_ > 0) return {};
  if (session_) session_->detach(deadline);
  session_.reset();
  configured_ = false;
  was_attached_ = false;
  timeout_ms_.store(kTimeoutBeforeAttachMs, std::memory_order_relaxed);
  return {};
}

Result<std::shared_ptr<Session>> Library::session(Deadline deadline) {
  for (;;) {
    {
      std::unique_lock lock(mutex_, deadline.when());
      if (!lock) return busy();
      if (session_) {
        session_->check();
        if (!session_->lost()) return session_;
        session_.reset();
      }
      if (!configured_) config_ = resolved({});
      configured_ = true;
      Result<std::shared_ptr<Session>> attached =
          Session::attach(config_.runtime_dir, config_.device, deadline);
      if (attached) {
        session_ = *attached;
        was_attached_ = true;
        const std::uint64_t theirs = session_->facts().default_timeout_ms;
        if (config_.timeout_ms == 0 && theirs != 0) {
          timeout_ms_.store(bounded(theirs), std::memory_order_relaxed);
        }
        return attached;
      }
      if (!was_attached_ || !may_come_back(attached.error()) || deadline.left() <= kAttachEvery) {
        return attached;
      }
    }
    std::this_thread::sleep_for(kAttachEvery);
  }
}

std::string Library::peer_address(Deadline deadline) {
  std::string runtime_dir;
  {
    const std::unique_lock lock(mutex_, deadline.when());
    if (!lock) return {};
    if (session_ && !session_->lost()) return session_->facts().peer_address;
    runtime_dir = configured_ ? config_.runtime_dir : resolved({}).runtime_dir;
  }
  NodeControl control(runtime_dir + "/client.sock");
  const Result<Attached> attached =
      control.attach("host:0", program_invocation_short_name, deadline);
  if (!attached) return {};
  static_cast<void>(control.detach(attached->key, deadline));
  return attached->peer_address;
}

}  // namespace arcomm::client
