#include "transport/topology/gpus.h"

#include <algorithm>

namespace arcomm {

std::string describe(const Gpu& gpu) {
  std::string text = gpu.uuid + " " + gpu.name + " at " + gpu.pci + ", " +
                     std::to_string(gpu.memory_bytes / 1'000'000'000) + " GB";
  if (gpu.links.empty()) return text;
  const auto reached = std::ranges::count_if(gpu.links, &GpuLink::reachable);
  const auto fast = std::ranges::count_if(gpu.links, &GpuLink::atomics);
  text += ", reaches " + std::to_string(reached) + " of " + std::to_string(gpu.links.size()) +
          (gpu.links.size() == 1 ? " other" : " others");
  if (reached > 0)
    text += fast == reached ? " (NVLink)" : fast == 0 ? " (PCI)" : " (some by NVLink)";
  return text;
}

}  // namespace arcomm
