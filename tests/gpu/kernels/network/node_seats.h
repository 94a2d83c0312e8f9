// The ranks of one node of a test, all of whose memory lies on its GPU: random inputs, and results
// poisoned between guards. Every other one is in place where the shape says so. Thread: the test's.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <memory>
#include <random>
#include <vector>

#include "kernels/network/network_call.h"
#include "tests/gpu/kernels/network/network_shape.h"
#include "tests/gpu/kernels/node/gpu_memory.h"

namespace arcomm::gpu {

class NodeSeats {
 public:
  explicit NodeSeats(const NetworkShape& shape);

  // New inputs. Gives what the node's kernel is to make of them: the partial.
  std::vector<std::byte> prepare(std::mt19937_64& random, cudaStream_t stream);
  NetworkSeats seats() const;
  std::vector<std::byte> result() const;  // the first one's
  // All have that result, and nothing around it was touched.
  bool are_alike() const;

 private:
  bool is_in_place(std::uint32_t seat) const { return shape_.is_in_place && seat % 2 == 0; }
  std::size_t first() const;  // where elements begin in each area
  std::size_t bytes() const { return shape_.count * size_of(shape_.dtype); }
  std::byte* recv(std::uint32_t seat) const;
  std::vector<std::byte> read(std::uint32_t seat) const;

  const NetworkShape shape_;
  const std::size_t area_bytes_, part_bytes_;
  std::vector<std::unique_ptr<GpuMemory<std::byte>>> send_, recv_;
  GpuMemory<unsigned char> parts_;
};

}  // namespace arcomm::gpu
