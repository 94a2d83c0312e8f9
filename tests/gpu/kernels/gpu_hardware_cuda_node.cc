// The conformance suite of the GPU hardware (tests/conformance) over open_gpu(): a rank on each of
// the first two GPUs, or both on the one that there is. Opened once: it loads every kernel.
#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdlib>
#include <thread>
#include <utility>

#include "kernels/launch/cuda_queue.h"
#include "kernels/launch/pinned_page.h"
#include "tests/conformance/gpu_hardware/node.h"
#include "tests/gpu/kernels/aged_scratch.h"
#include "tests/gpu/kernels/filler.h"
#include "transport/device/cuda/cuda_device.h"

namespace arcomm::gpu {

namespace {

constexpr std::chrono::seconds kPatience{30};

Status moved(cudaError_t error_code, const char* what) {
  if (error_code == cudaSuccess) return {};
  return error(ErrorCode::Internal, Reason::None, what, ": ", cudaGetErrorString(error_code));
}

class CudaHardwareNode final : public HardwareNode {
 public:
  static Result<std::shared_ptr<HardwareNode>> open() {
    const int gpus = std::min<int>(kConformanceRanks, count_cuda_devices());
    if (gpus == 0) return error(ErrorCode::Unavailable, Reason::Unsupported, "there is no GPU");
    std::vector<int> peers;
    for (int gpu = 0; gpu < gpus; ++gpu) peers.push_back(gpu);
    auto node = std::make_shared<CudaHardwareNode>();
    for (const int gpu : peers) {
      auto device = CudaDevice::create({.ordinal = gpu, .peers = peers});
      if (!device) return std::move(device).error();
      auto hands = CudaQueue::create(gpu);
      if (!hands) return std::move(hands).error();
      auto hardware = open_gpu(**device);
      if (!hardware) return std::move(hardware).error();
      Gpu& one = node->gpus_[static_cast<std::size_t>(gpu)];
      auto strangers = CudaQueue::create(gpu);
      if (!strangers) return std::move(strangers).error();
      one = {std::move(*device), std::move(*hands), std::move(*strangers), std::move(*hardware)};
    }
    auto page = PinnedPage::create(sizeof(std::uint32_t));
    if (!page) return std::move(page).error();
    node->page_ = std::move(*page);
    for (std::uint32_t rank = 0; rank < kConformanceRanks; ++rank) {
      const std::uint32_t turn = rank / static_cast<std::uint32_t>(gpus);
      Gpu& one = node->gpu_of(rank, gpus);
      const bool has_own = one.hardware.launcher->own_queues() > turn;
      node->seats_[rank] = {one.device.get(), &one.hardware, has_own ? turn + 1 : 0};
      node->hands_[rank] = &one.hands;
    }
    return std::shared_ptr<HardwareNode>(std::move(node));
  }

  const Seat& seat(std::uint32_t rank) const override { return seats_[rank]; }
  Status copy_in(std::uint32_t rank, void* to, const void* from, std::uint64_t bytes) override {
    return copy(rank, to, from, bytes, cudaMemcpyHostToDevice);
  }
  Status copy_out(std::uint32_t rank, void* to, const void* from, std::uint64_t bytes) override {
    return copy(rank, to, from, bytes, cudaMemcpyDeviceToHost);
  }
  Status clear(std::uint32_t rank, const Memory& memory) override {
    ARC_RETURN_IF_ERROR(hands_[rank]->make_current());
    ARC_RETURN_IF_ERROR(
        moved(cudaMemsetAsync(memory.data(), 0, memory.bytes(), stream(rank)), "clearing memory"));
    return hands_[rank]->drain(kPatience);
  }
  Status store(std::uint32_t rank, std::uint64_t* word, std::uint64_t value) override {
    ARC_RETURN_IF_ERROR(hands_[rank]->store(word, value));
    return hands_[rank]->drain(kPatience);
  }
  Status fill(bool full) override {
    auto* const end = static_cast<std::uint32_t*>(page_.host());
    __atomic_store_n(end, full ? 0 : 1, __ATOMIC_RELEASE);
    for (const Gpu& gpu : gpus_) {
      if (gpu.device == nullptr) continue;
      if (!full) {
        ARC_RETURN_IF_ERROR(gpu.strangers.drain(kPatience));
        continue;
      }
      ARC_RETURN_IF_ERROR(gpu.strangers.make_current());
      ARC_RETURN_IF_ERROR(
          moved(fill_gpu(end, static_cast<cudaStream_t>(gpu.strangers.stream())), "filling a GPU"));
    }
    // It has begun everywhere by the time that anything else is launched.
    if (full) std::this_thread::sleep_for(std::chrono::milliseconds(50));
    return {};
  }
  Status age(std::uint32_t rank, void* scratch, std::uint32_t before) override {
    const CudaQueue& queue = *hands_[rank];
    ARC_RETURN_IF_ERROR(queue.make_current());
    ARC_RETURN_IF_ERROR(
        moved(age_scratch(scratch, before, static_cast<cudaStream_t>(queue.stream())),
              "ageing a scratch"));
    return queue.drain(kPatience);
  }

 private:
  struct Gpu {
    std::unique_ptr<CudaDevice> device;
    CudaQueue hands;      // the client's stream, and its host's
    CudaQueue strangers;  // somebody else's
    GpuHardware hardware;
  };

  Gpu& gpu_of(std::uint32_t rank, int gpus) {
    return gpus_[rank % static_cast<std::uint32_t>(gpus)];
  }
  cudaStream_t stream(std::uint32_t rank) const {
    return static_cast<cudaStream_t>(hands_[rank]->stream());
  }
  Status copy(std::uint32_t rank, void* to, const void* from, std::uint64_t bytes,
              cudaMemcpyKind kind) {
    ARC_RETURN_IF_ERROR(hands_[rank]->make_current());
    ARC_RETURN_IF_ERROR(
        moved(cudaMemcpyAsync(to, from, bytes, kind, stream(rank)), "copying memory"));
    return hands_[rank]->drain(kPatience);
  }

  PinnedPage page_;
  std::array<Gpu, kConformanceRanks> gpus_;
  std::array<Seat, kConformanceRanks> seats_{};
  std::array<const CudaQueue*, kConformanceRanks> hands_{};
};

// Let go before the CUDA runtime goes.
std::shared_ptr<HardwareNode>& opened_node() {
  static std::shared_ptr<HardwareNode> node;
  return node;
}

Result<std::shared_ptr<HardwareNode>> node() {
  if (opened_node() == nullptr) {
    auto opened = CudaHardwareNode::open();
    if (!opened) return opened;
    opened_node() = std::move(opened).value();
  }
  return opened_node();
}

}  // namespace
}  // namespace arcomm::gpu

namespace arcomm {

std::vector<HardwareUnderTest> all_gpu_hardware() {
  return {{"Cuda", gpu::node}};
}

}  // namespace arcomm

int main(int argc, char** argv) {
  // As the daemon does: a kernel that is loaded at its first launch waits for those that run, and
  // streams that share a connection have one order.
  ::setenv("CUDA_MODULE_LOADING", "EAGER", 1);
  ::setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 1);
  testing::InitGoogleTest(&argc, argv);
  const int failed = RUN_ALL_TESTS();
  arcomm::gpu::opened_node().reset();
  return failed;
}
