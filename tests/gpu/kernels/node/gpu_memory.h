// Memory of one GPU for tests: an owner, zeroed, written and read by blocking copies that wait for
// no stream's kernels.
#pragma once

#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <vector>

namespace arcomm::gpu {

template <typename T>
class GpuMemory {
 public:
  explicit GpuMemory(std::size_t count) : count_(count) {
    EXPECT_EQ(cudaMalloc(&data_, std::max<std::size_t>(count, 1) * sizeof(T)), cudaSuccess);
    EXPECT_EQ(cudaMemset(data_, 0, count * sizeof(T)), cudaSuccess);
  }
  ~GpuMemory() { cudaFree(data_); }
  GpuMemory(const GpuMemory&) = delete;
  GpuMemory& operator=(const GpuMemory&) = delete;

  T* data() const { return static_cast<T*>(data_); }
  std::size_t size() const { return count_; }
  void write(const std::vector<T>& from) const {
    EXPECT_EQ(cudaMemcpy(data_, from.data(), count_ * sizeof(T), cudaMemcpyDefault), cudaSuccess);
  }
  std::vector<T> read() const {
    std::vector<T> to(count_);
    EXPECT_EQ(cudaMemcpy(to.data(), data_, count_ * sizeof(T), cudaMemcpyDefault), cudaSuccess);
    return to;
  }

 private:
  void* data_ = nullptr;
  std::size_t count_;
};

}  // namespace arcomm::gpu
