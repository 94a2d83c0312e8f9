#include "daemon/plan/device_shape.h"

#include <algorithm>

#include "kernels/catalog.h"
#include "transport/topology/topology.h"

namespace arcomm {

DeviceShape host_shape(std::uint64_t threads) {
  const Topology topology = discover_host();
  DeviceShape shape;
  const std::uint64_t wanted = threads == 0 ? topology.parallelism() : threads;
  shape.streams = static_cast<std::uint32_t>(std::clamp<std::uint64_t>(wanted, 1, kMaxStreams));
  if (topology.llc_bytes != 0) shape.cache_bytes = topology.llc_bytes;
  return shape;
}

}  // namespace arcomm
