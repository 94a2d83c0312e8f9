// The node's GPUs and the ways between them, as a value. Discovering asks the driver without
// opening a GPU's context; any thread.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "proto/status.h"

namespace arcomm {

struct GpuLink {
  int to = 0;                // ordinal
  bool reachable = false;    // by loads and stores
  bool atomics = false;      // and by atomic operations: over NVLink, not over PCI Express
  int performance_rank = 0;  // the driver's; the lowest is the fastest way
};

struct Gpu {
  int ordinal = 0;
  std::string uuid;  // "GPU-<uuid>"
  std::string name;  // "NVIDIA H200"
  std::string pci;   // "0000:1b:00.0"
  std::uint64_t memory_bytes = 0;
  int multiprocessors = 0;
  int capability = 0;  // 90: 9.0
  bool under_mps = false;
  std::vector<GpuLink> links;  // to every other GPU
};

// In the driver's order; empty where this process sees none. Unavailable without a driver,
// Unimplemented in a build without CUDA.
Result<std::vector<Gpu>> discover_gpus();

// "GPU-... NVIDIA H200 at 0000:1b:00.0, 141 GB, reaches 3 of 3 others (NVLink)"
std::string describe(const Gpu& gpu);

}  // namespace arcomm
