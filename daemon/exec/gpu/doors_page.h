// A member's HostDoors: a sealed memfd that the client writes and the worker reads. Owns both ends;
// the descriptor is duplicated for the client. Thread: the worker's; the client writes at any time.
#pragma once

#include <cstdint>
#include <utility>

#include "proto/device_mailbox.h"
#include "proto/status.h"
#include "proto/unique_fd.h"

namespace arcomm {

class DoorsPage {
 public:
  static Result<DoorsPage> create();

  DoorsPage() = default;
  ~DoorsPage();
  DoorsPage(DoorsPage&& other) noexcept
      : fd_(std::move(other.fd_)), doors_(std::exchange(other.doors_, nullptr)) {}
  DoorsPage& operator=(DoorsPage&& other) noexcept {
    std::swap(fd_, other.fd_);
    std::swap(doors_, other.doors_);
    return *this;
  }

  // Acquires: pairs with the release store of the client's kernel.
  Door launched() const { return door_from(__atomic_load_n(&doors_->launched, __ATOMIC_ACQUIRE)); }
  std::uint32_t resident_posted() const {
    return __atomic_load_n(&doors_->resident_posted, __ATOMIC_RELAXED);
  }
  std::uint32_t direct_begun() const {
    return __atomic_load_n(&doors_->direct_begun, __ATOMIC_RELAXED);
  }
  Done direct_failed() const {
    return done_from(__atomic_load_n(&doors_->direct_failed, __ATOMIC_RELAXED));
  }
  Result<UniqueFd> export_fd() const;

 private:
  UniqueFd fd_;
  const HostDoors* doors_ = nullptr;
};

}  // namespace arcomm
