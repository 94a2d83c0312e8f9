// From what is to be done to how: pure and deterministic, so that whoever agrees on the question
// agrees on the answer. Any thread; allocates nothing.
#pragma once

#include <cstdint>

#include "daemon/plan/operation.h"
#include "daemon/plan/plan.h"
#include "daemon/plan/tuning/tuning_table.h"

namespace arcomm {

// What planning needs to know of the machine.
struct DeviceShape {
  std::uint32_t streams = 1;               // threads that can pull tiles, the worker included
  std::uint64_t cache_bytes = 8ull << 20;  // the last-level cache
};

// The host device with so many threads; 0: one per core that this process may use.
DeviceShape host_shape(std::uint64_t threads);

// What one tile may touch, over all ranks: the worker runs a tile between two looks at its rings,
// and another tenant's small operation waits no longer than that (about 50 us at 10 GB/s and more
// in the cache).
inline constexpr std::uint64_t kTileTrafficBytes = 1 << 20;

Plan make_plan(const Signature& signature, std::uint32_t ranks, const DeviceShape& shape,
               const TuningTable& table);
// The same question for `arctl tune --explain`: the choice for a message of that size.
Choice choose(std::uint64_t bytes, DType dtype, std::uint32_t ranks, const DeviceShape& shape,
              const TuningTable& table, TuningKey key = {});

}  // namespace arcomm
