// One node of a test whose nodes share a GPU: FIFOs, slots and verdict in pinned memory, a stream
// for its kernels, random partials and a poisoned result between guards. Thread: the test's; the
// FIFOs belong to the engine that they were added to.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "daemon/proxy/proxy_engine.h"
#include "kernels/launch/pinned_page.h"
#include "kernels/network/launch_network.h"
#include "tests/gpu/kernels/network/network_shape.h"
#include "tests/gpu/kernels/network/node_seats.h"
#include "tests/gpu/kernels/node/gpu_memory.h"

namespace arcomm::gpu {

class NetworkNode {
 public:
  NetworkNode(const NetworkShape& shape, std::uint32_t number);
  ~NetworkNode();
  NetworkNode(const NetworkNode&) = delete;
  NetworkNode& operator=(const NetworkNode&) = delete;

  // On the proxy's thread. Its FIFOs are a group of the node's number.
  void add(proxy::ProxyEngine& engine,
           const std::function<proxy::Wire*(std::uint32_t peer)>& wire_to);
  bool remove(proxy::ProxyEngine& engine);

  // Before each operation: a new partial, and poison wherever the kernel may write.
  void prepare(std::uint32_t operation);
  Status launch(std::uint32_t operation, std::uint64_t timeout_ns);
  // The kernel's verdict; another number: none came within ten seconds.
  Done wait(std::uint32_t operation) const;

  std::span<const std::byte> partial() const { return partial_; }
  std::vector<std::byte> result() const;
  bool guards_are_whole() const;
  // In Normal mode, of the first lane: where steps lie that are sent to a peer, the first one
  // first.
  std::span<const std::byte> slots_to(std::uint32_t peer) const;
  // As a daemon that will not let its kernels wait longer.
  void limit_waits(std::uint64_t ns) const;

 private:
  // Where partial or result lie, between guards.
  struct Area {
    std::byte* begin = nullptr;
    std::size_t bytes = 0;  // of the whole area
    std::size_t first = 0;  // where the elements begin
    std::size_t last = 0;
  };
  Area area_of(std::byte* begin, DType type) const;
  std::size_t area_bytes() const;
  void lay_out_pinned_memory();
  void make_fifos();
  std::vector<std::byte> read(const Area& area) const;

  const NetworkShape shape_;
  const std::uint32_t number_;
  const std::uint64_t fifos_;
  const std::uint32_t most_bytes_;
  GpuMemory<FifoPort> ports_;
  GpuMemory<std::uint64_t> steps_;
  GpuMemory<std::byte> in_memory_, out_memory_;
  GpuMemory<NetworkWords> words_;
  cudaStream_t stream_ = nullptr;

  PinnedPage pinned_;
  DeviceFifo* device_fifos_ = nullptr;
  std::span<std::byte> slots_;
  std::uint64_t* verdict_ = nullptr;
  Area in_, out_;

  std::unique_ptr<NodeSeats> seats_;  // where it has several ranks
  std::vector<std::byte> partial_;
  std::unique_ptr<proxy::SharedSlots> pool_;
  std::vector<proxy::FifoConfig> configs_;
  std::vector<proxy::FifoId> ids_;
};

}  // namespace arcomm::gpu
