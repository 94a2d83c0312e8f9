// The fakes that unit tests run the data plane on, as GPUs of their own and as one.
#include <sys/mman.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "tests/conformance/gpu_hardware/node.h"
#include "tests/unit/daemon/exec/gpu/fakes/fake_gpu.h"
#include "tests/unit/daemon/exec/gpu/fakes/fake_grid.h"
#include "tests/unit/daemon/exec/gpu/fakes/fake_launcher.h"

namespace arcomm {
namespace {

class FakeHardwareNode final : public HardwareNode {
 public:
  explicit FakeHardwareNode(std::vector<int> gpus) {
    node_.gpus = std::move(gpus);
    const int last = *std::max_element(node_.gpus.begin(), node_.gpus.end());
    for (int gpu = 0; gpu <= last; ++gpu) {
      devices_.push_back(std::make_unique<test::FakeGpu>(node_, gpu));
      hardware_.push_back({.grid = std::make_unique<test::FakeGrid>(node_),
                           .launcher = std::make_unique<test::FakeLauncher>(node_, gpu),
                           .resident_scratch_bytes = 4096,
                           .in_stream_images = {}});
    }
    std::vector<std::uint32_t> taken(hardware_.size());
    for (const int gpu : node_.gpus) {
      const auto at = static_cast<std::size_t>(gpu);
      seats_.push_back({devices_[at].get(), &hardware_[at], ++taken[at]});
    }
  }
  ~FakeHardwareNode() override { EXPECT_EQ(node_.memories, 0) << "GPU memory was not let go"; }

  const Seat& seat(std::uint32_t rank) const override { return seats_[rank]; }
  Status copy_in(std::uint32_t, void* to, const void* from, std::uint64_t bytes) override {
    std::memcpy(to, from, bytes);
    return {};
  }
  Status copy_out(std::uint32_t, void* to, const void* from, std::uint64_t bytes) override {
    std::memcpy(to, from, bytes);
    return {};
  }
  Status clear(std::uint32_t, const Memory& memory) override {
    // Scratch is large: what nobody has touched stays so.
    if (::madvise(memory.data(), memory.bytes(), MADV_REMOVE) != 0)
      std::memset(memory.data(), 0, memory.bytes());
    return {};
  }
  Status store(std::uint32_t, std::uint64_t* word, std::uint64_t value) override {
    test::store_word(*word, value);
    return {};
  }
  Status fill(bool full) override {
    node_.full = full;
    return {};
  }
  Status age(std::uint32_t, void* scratch, std::uint32_t before) override {
    test::FakeScratch& aged = node_.scratches[scratch];
    aged.number = aged.gated = before;
    aged.gates[0] = aged.gates[1] = before / 2;
    return {};
  }

 private:
  test::FakeNode node_;
  std::vector<std::unique_ptr<test::FakeGpu>> devices_;
  std::vector<GpuHardware> hardware_;
  std::vector<Seat> seats_;  // by rank
};

HardwareUnderTest fakes(std::string name, std::vector<int> gpus) {
  return {std::move(name), [gpus]() -> Result<std::shared_ptr<HardwareNode>> {
            return std::shared_ptr<HardwareNode>(std::make_shared<FakeHardwareNode>(gpus));
          }};
}

}  // namespace

std::vector<HardwareUnderTest> all_gpu_hardware() {
  return {fakes("FakesOnTwoGpus", {0, 1}), fakes("FakesOnOneGpu", {0, 0})};
}

}  // namespace arcomm
