// Two ranks and the GPUs that they are on, as the GPU hardware's conformance suite drives them:
// real GPUs, or fakes of host memory. A program of the suite links one file that says which.
// Thread: one.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "daemon/exec/gpu/hardware/gpu_hardware.h"
#include "transport/device/device.h"

namespace arcomm {

inline constexpr std::uint32_t kConformanceRanks = 2;

class HardwareNode {
 public:
  struct Seat {
    Device* device = nullptr;
    GpuHardware* hardware = nullptr;  // two ranks on one GPU share it
    std::uint32_t queue = 0;          // its own; 0 where it has none
  };

  virtual ~HardwareNode() = default;
  virtual const Seat& seat(std::uint32_t rank) const = 0;

  // What a client and its host do, past all that runs or waits on the rank's GPU: it has happened
  // when they return. Memory of that GPU on one side, of the host on the other.
  virtual Status copy_in(std::uint32_t rank, void* to, const void* from, std::uint64_t bytes) = 0;
  virtual Status copy_out(std::uint32_t rank, void* to, const void* from, std::uint64_t bytes) = 0;
  // Only while nothing runs there.
  virtual Status clear(std::uint32_t rank, const Memory& memory) = 0;
  // Whole, and behind what was copied in before.
  virtual Status store(std::uint32_t rank, std::uint64_t* word, std::uint64_t value) = 0;
  // A kernel of somebody else's fills all GPUs, until they are to be empty again.
  virtual Status fill(bool full) = 0;
  // A scratch that nothing uses is as it were if so many launched operations had ended well, and as
  // many gates been passed. `before`: even.
  virtual Status age(std::uint32_t rank, void* scratch, std::uint32_t before) = 0;
};

struct HardwareUnderTest {
  std::string name;
  // The same node again, or a new one. Nothing runs or waits on it.
  std::function<Result<std::shared_ptr<HardwareNode>>()> open;
};

std::vector<HardwareUnderTest> all_gpu_hardware();

}  // namespace arcomm
