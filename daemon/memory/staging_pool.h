// Memory of one worker for what is on its way between nodes, dealt out to communicators in parts.
// No tenant takes all of it (fair_share.h): one alone gets half, the next one half of the rest.
// Thread: the worker's. The pool outlives its parts, and whoever peers' bytes go to outlives them.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>

#include "daemon/memory/fair_share.h"
#include "proto/status.h"
#include "transport/device/memory.h"

namespace arcomm {

class Device;

class StagingPool {
 public:
  static constexpr std::uint64_t kGrain = 4096;  // bytes; parts begin and end at multiples

  // `bytes`: net.staging_bytes. No memory is taken before open() or the first take().
  StagingPool(Device& device, std::uint64_t bytes) : device_(device), bytes_(bytes) {}

  // All of it, present from then on: a page that cannot be had is an error here and never later.
  // Takes some 50 ms for 256 MB. Again: no effect.
  Status open();
  // All of it, once it is open.
  std::span<std::byte> memory() const {
    return memory_ ? std::span(memory_.data(), memory_.bytes()) : std::span<std::byte>();
  }
  // ResourceExhausted naming net.staging_bytes, what is free, and who has the most.
  Result<std::span<std::byte>> take(uid_t uid, std::uint64_t bytes);
  // What take() gave this uid, whole.
  void give_back(uid_t uid, std::span<std::byte> part);

  std::uint64_t taken() const { return share_.total(); }
  std::uint64_t bytes() const { return bytes_; }

 private:
  using Free = std::map<std::uint64_t, std::uint64_t>;  // length by offset; no two touch
  Error refusal(uid_t uid, std::uint64_t bytes, bool is_share) const;

  Device& device_;
  std::uint64_t bytes_;
  Memory memory_;
  FairShare share_;
  Free free_;
};

}  // namespace arcomm
