// A member's HostDoorbells: a sealed memfd that the client writes and the worker reads. Owns both
// ends; the descriptor is duplicated for the client. Thread: the worker's; the client writes at any
// time.
#pragma once

#include <cstdint>
#include <utility>

#include "proto/device_mailbox.h"
#include "proto/status.h"
#include "proto/unique_fd.h"

namespace arcomm {

class DoorbellPage {
 public:
  static Result<DoorbellPage> create();

  DoorbellPage() = default;
  ~DoorbellPage();
  DoorbellPage(DoorbellPage&& other) noexcept
      : fd_(std::move(other.fd_)), doorbells_(std::exchange(other.doorbells_, nullptr)) {}
  DoorbellPage& operator=(DoorbellPage&& other) noexcept {
    std::swap(fd_, other.fd_);
    std::swap(doorbells_, other.doorbells_);
    return *this;
  }

  // Acquires: pairs with the release store of the client's kernel.
  Doorbell launched() const {
    return doorbell_from(__atomic_load_n(&doorbells_->launched, __ATOMIC_ACQUIRE));
  }
  std::uint32_t resident_posted() const {
    return __atomic_load_n(&doorbells_->resident_posted, __ATOMIC_RELAXED);
  }
  std::uint32_t in_stream_begun() const {
    return __atomic_load_n(&doorbells_->in_stream_begun, __ATOMIC_RELAXED);
  }
  Done in_stream_failed() const {
    return done_from(__atomic_load_n(&doorbells_->in_stream_failed, __ATOMIC_RELAXED));
  }
  Result<UniqueFd> export_fd() const;

 private:
  UniqueFd fd_;
  const HostDoorbells* doorbells_ = nullptr;
};

}  // namespace arcomm
