// Host memory that a GPU can write: words by which kernels tell the CPU what they did, and which
// the CPU reads without a call to the driver. Move-only owner; zeroed. Making and freeing it may
// wait for kernels that run, so it must not happen while the resident grid does.
#pragma once

#include <cstdint>
#include <utility>

#include "proto/status.h"

namespace arcomm {

class PinnedPage {
 public:
  // Usable from every GPU.
  static Result<PinnedPage> create(std::uint64_t bytes);

  PinnedPage() = default;
  ~PinnedPage();
  PinnedPage(PinnedPage&& other) noexcept : base_(std::exchange(other.base_, nullptr)) {}
  PinnedPage& operator=(PinnedPage&& other) noexcept {
    std::swap(base_, other.base_);
    return *this;
  }

  // What a GPU may still write to is left to the driver, which takes it when the process ends.
  void keep() { base_ = nullptr; }

  void* host() const { return base_; }
  void* device() const { return base_; }  // one address for both

 private:
  explicit PinnedPage(void* base) : base_(base) {}
  void* base_ = nullptr;
};

// Memory that the process has anyway, of whole pages: every GPU reaches it from then on, by the
// same address, until the process ends.
Status pin_host_memory(void* memory, std::uint64_t bytes);

}  // namespace arcomm
