// A rank's side of in-stream operations (proto/gpu/exchange.h): the exchanges of all ranks, mapped
// on this rank's GPU, and the kernels that use them. Thread: made by one, then only read.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "client/cuda/gpu.h"
#include "proto/gpu/in_stream_call.h"

namespace arcomm::client {

class GpuExchange {
 public:
  // descriptors: the image, then each rank's memory of `bytes`.
  static Result<std::unique_ptr<GpuExchange>> open(Gpu& gpu, std::span<const UniqueFd> descriptors,
                                                   std::uint64_t bytes,
                                                   std::uint64_t max_timeout_ms);

  const InStreamKernels& kernels() const { return *kernels_; }
  // What the daemon lets an operation last.
  std::uint64_t max_timeout_ns() const { return max_timeout_ns_; }
  // With the addresses of the exchanges; the rest is the operation's.
  const InStreamCall& call() const { return call_; }

 private:
  GpuExchange() = default;

  std::vector<std::unique_ptr<GpuMapping>> memory_;  // by rank
  const InStreamKernels* kernels_ = nullptr;
  InStreamCall call_;
  std::uint64_t max_timeout_ns_ = 0;
};

}  // namespace arcomm::client
