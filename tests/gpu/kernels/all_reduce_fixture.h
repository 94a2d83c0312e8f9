// Operations on random data beside the host's reference, for tests of kernels without a daemon.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <random>
#include <vector>

#include "kernels/host/reference.h"
#include "tests/gpu/kernels/node/gpu_node.h"
#include "tests/gpu/kernels/node/random_elements.h"

namespace arcomm::gpu {

inline constexpr std::uint64_t kBytes = 8 << 20;
inline constexpr std::uint64_t kGuard = 256;

class AllReduceOnGpus : public testing::TestWithParam<int> {
 protected:
  void SetUp() override {
    auto node = GpuNode::open(GetParam(), kBytes, GpuNode::Gpus::Shared);
    ASSERT_TRUE(node) << node.error().to_string();
    node_ = std::make_unique<GpuNode>(std::move(*node));
  }
  void expect_done() {
    for (int rank = 0; rank < node_->ranks(); ++rank) {
      EXPECT_EQ(node_->outcome(rank).code, 0U)
          << "rank " << rank << " waited for " << node_->outcome(rank).culprit;
    }
  }

  // One operation on random data beside the reference; outputs poisoned, with guards around them.
  void check(CudaAlgorithm algorithm, DType dtype, ReduceOp op, std::uint64_t count,
             std::uint64_t send_offset, std::uint64_t recv_offset, bool in_place,
             CudaShape shape = {}) {
    const std::uint64_t bytes = count * size_of(dtype);
    const int ranks = node_->ranks();
    std::vector<std::vector<std::byte>> inputs(static_cast<std::size_t>(ranks)), expected = inputs;
    AllReduceArgs args = AllReduceArgs::among(static_cast<std::uint32_t>(ranks), count, dtype, op);
    for (int rank = 0; rank < ranks; ++rank) {
      auto& input = inputs[static_cast<std::size_t>(rank)];
      auto& output = expected[static_cast<std::size_t>(rank)];
      input.resize(bytes + 8);
      fill(input, dtype, random_);
      output.resize(bytes + 1);
      args.inputs[rank] = input.data();
      args.outputs[rank] = output.data();
      node_->use(rank);
      cudaMemset((*node_)[rank].recv.data(), 0xa5, kGuard + recv_offset + bytes + kGuard);
      cudaMemcpy((*node_)[rank].send.data() + kGuard + send_offset, input.data(), bytes,
                 cudaMemcpyHostToDevice);
    }
    for (int rank = 0; rank < ranks; ++rank) {
      node_->use(rank);
      cudaDeviceSynchronize();
    }
    reference::all_reduce_range(args, 0, count);
    const Status launched = node_->launch(algorithm, count, dtype, op, shape, kGuard + send_offset,
                                          kGuard + recv_offset, in_place);
    ASSERT_TRUE(launched) << launched.error().to_string();
    const Status ended = node_->synchronize();
    ASSERT_TRUE(ended) << ended.error().to_string();
    for (int rank = 0; rank < ranks; ++rank) {
      GpuRank& one = (*node_)[rank];
      node_->use(rank);
      std::vector<std::byte> output(bytes + 1);
      const std::byte* from = in_place ? one.send.data() + kGuard + send_offset
                                       : one.recv.data() + kGuard + recv_offset;
      ASSERT_EQ(cudaMemcpy(output.data(), from, bytes, cudaMemcpyDeviceToHost), cudaSuccess);
      ASSERT_EQ(std::memcmp(output.data(), expected[static_cast<std::size_t>(rank)].data(), bytes),
                0)
          << "rank " << rank << " of " << ranks << ", " << name_of(algorithm) << ", " << dtype
          << " " << op << ", " << count << " elements, offsets " << send_offset << " and "
          << recv_offset << (in_place ? ", in place" : "") << ": first wrong byte "
          << std::mismatch(output.begin(), output.begin() + static_cast<std::ptrdiff_t>(bytes),
                           expected[static_cast<std::size_t>(rank)].begin())
                     .first -
                 output.begin();
      if (in_place) continue;
      std::byte guards[2][kGuard];
      cudaMemcpy(guards[0], from - kGuard, kGuard, cudaMemcpyDeviceToHost);
      cudaMemcpy(guards[1], from + bytes, kGuard, cudaMemcpyDeviceToHost);
      for (const auto& guard : guards) {
        ASSERT_TRUE(
            std::all_of(guard, guard + kGuard, [](std::byte b) { return b == std::byte{0xa5}; }))
            << "written outside of the output: " << count << " " << dtype;
      }
    }
  }

  std::unique_ptr<GpuNode> node_;
  std::mt19937_64 random_{20261121};
};

// From two to all the GPUs that there are, a rank on each, and more that share them.
inline std::vector<int> rank_counts(std::vector<int> sharing) {
  std::vector<int> counts;
  for (int ranks = 2; ranks <= std::clamp(count_cuda_devices(), 2, 8); ++ranks)
    counts.push_back(ranks);
  std::erase_if(sharing, [&](int ranks) { return ranks <= counts.back(); });
  counts.insert(counts.end(), sharing.begin(), sharing.end());
  return counts;
}

}  // namespace arcomm::gpu
