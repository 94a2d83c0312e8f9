// A member on fake GPUs with the exchanges of two ranks: what it calls may go in-stream.
#pragma once

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "tests/unit/client/gpu/gpu_member_fixture.h"

namespace arcomm::client {

class GpuInStreamTest : public GpuMemberTest {
 protected:
  GpuInStreamTest() {
    Result<std::unique_ptr<GpuExchange>> exchange = open(in_stream_exchange_bytes(2));
    EXPECT_TRUE(exchange.ok());
    make(std::move(*exchange));
    for (const GpuBuffer& buffer : {send, recv, elsewhere()})
      gpu->place(buffer.range.base, buffer.range.bytes, ++allocation_);
  }
  Result<std::unique_ptr<GpuExchange>> open(std::uint64_t bytes) {
    std::vector<UniqueFd> descriptors;
    descriptors.push_back(memfd(1));
    for (int rank = 0; rank < 2; ++rank) descriptors.push_back(memfd(bytes));
    return GpuExchange::open(*gpu, descriptors, bytes, 500);
  }
  Status all_reduce(const CollectiveCall& call, void* stream = nullptr) {
    const Launch launch = member->launch_of(call);
    EXPECT_EQ(launch.path, LaunchPath::InStream);
    return member->all_reduce_in_stream(call, launch, 1000, stream, deadline());
  }
  Status all_reduce(std::uint64_t count, void* stream = nullptr) {
    return all_reduce(call(count), stream);
  }
  static Status check_unused(const GpuBuffer& buffer) {
    return InStreamUses::check_unused(reinterpret_cast<const void*>(buffer.range.base + 4096), 1);
  }
  GpuBuffer elsewhere() const {
    return {.range = {.base = send.range.base + (1ULL << 31), .bytes = 1 << 20}, .id = {3, 1}};
  }
  static CollectiveCall in_place(std::uintptr_t address, std::uint64_t count = 1) {
    return {all_reduce_of(count), reinterpret_cast<const std::byte*>(address),
            reinterpret_cast<std::byte*>(address)};
  }
  Status all_reduce_in(const GpuBuffer& buffer) { return all_reduce(in_place(buffer.range.base)); }

  std::uint64_t allocation_ = 0;
};

}  // namespace arcomm::client
