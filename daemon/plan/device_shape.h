// What planning needs to know of the machine. A value; any thread.
#pragma once

#include <cstdint>

namespace arcomm {

struct DeviceShape {
  std::uint32_t streams = 1;               // threads that can pull tiles, the worker included
  std::uint64_t cache_bytes = 8ull << 20;  // the last-level cache
};

// The host device with so many threads; 0: one per core that this process may use.
DeviceShape host_shape(std::uint64_t threads);

}  // namespace arcomm
