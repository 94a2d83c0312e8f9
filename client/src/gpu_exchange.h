// A rank's side of direct operations (proto/direct_exchange.h): the exchanges of all ranks, mapped
// on this rank's GPU, and the kernels that use them. Thread: made by one, then only read.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "client/device/gpu.h"
#include "proto/direct_exchange.h"

namespace arcomm::client {

class GpuExchange {
 public:
  // descriptors: the image, then each rank's memory of `bytes`.
  static Result<std::unique_ptr<GpuExchange>> open(Gpu& gpu, std::span<const UniqueFd> descriptors,
                                                   std::uint64_t bytes, bool whole_lines);

  const DirectKernels& kernels() const { return *kernels_; }
  bool whole_lines() const { return whole_lines_; }
  // With the addresses of the exchanges; the rest is the operation's.
  const DirectCall& call() const { return call_; }

 private:
  GpuExchange() = default;

  std::vector<std::unique_ptr<GpuMapping>> memory_;  // by rank
  const DirectKernels* kernels_ = nullptr;
  DirectCall call_;
  bool whole_lines_ = false;
};

}  // namespace arcomm::client
