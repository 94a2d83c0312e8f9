#include "daemon/plan/planner.h"

#include <algorithm>

#include "kernels/catalog.h"
#include "transport/topology/topology.h"

namespace arcomm {
namespace {

// Larger operations are always cut up, whatever was measured: the worker must come back to its
// rings.
constexpr std::uint64_t kMaxInlineTraffic = 2 * kTileTrafficBytes;
// With a codec 2 ns an element, rotated and between two ranks (kernel_bench, two cores with AVX2):
// so much is 65 us of 16-bit elements.
constexpr std::uint64_t kMaxInlineCodedTraffic = kMaxInlineTraffic / 8;

std::uint32_t bounded_tile(std::uint32_t tile_bytes, std::uint32_t ranks) {
  const std::uint64_t most =
      std::max<std::uint64_t>(kTileTrafficBytes / (std::uint64_t{2} * ranks), kMinTileBytes);
  return static_cast<std::uint32_t>(std::clamp<std::uint64_t>(tile_bytes, kMinTileBytes, most));
}

}  // namespace

DeviceShape host_shape(std::uint64_t threads) {
  const Topology topology = discover_host();
  DeviceShape shape;
  const std::uint64_t wanted = threads == 0 ? topology.parallelism() : threads;
  shape.streams = static_cast<std::uint32_t>(std::clamp<std::uint64_t>(wanted, 1, kMaxStreams));
  if (topology.llc_bytes != 0) shape.cache_bytes = topology.llc_bytes;
  return shape;
}

Choice choose(std::uint64_t bytes, DType dtype, std::uint32_t ranks, const DeviceShape& shape,
              const TuningTable& table, TuningKey key) {
  Choice choice = default_choice(bytes, ranks, shape.streams, shape.cache_bytes);
  if (const TuningTable::Crossover* measured = table.find(ranks, bytes, dtype, key)) {
    const Choice wanted{measured->algorithm, measured->tile_bytes,
                        entry_of(measured->algorithm).is_tiled ? shape.streams : 1};
    if (can_run(wanted, bytes, ranks)) choice = wanted;
  }
  if (!entry_of(choice.algorithm).is_tiled &&
      std::uint64_t{2} * ranks * bytes >
          (key.codec == Codec::None ? kMaxInlineTraffic : kMaxInlineCodedTraffic)) {
    choice = {Algorithm::Tiled, kMaxTileBytes, shape.streams};
  }
  if (entry_of(choice.algorithm).is_tiled)
    choice.tile_bytes = bounded_tile(choice.tile_bytes, ranks);
  return choice;
}

Plan make_plan(const Signature& signature, std::uint32_t ranks, const DeviceShape& shape,
               const TuningTable& table) {
  static_assert(kCollectives == 1, "planned as an AllReduce, whatever the signature says");
  Plan plan;
  if (signature.is_empty()) return plan;  // that all ranks have come is all there is to it
  plan.add(LaunchStep{choose(signature.send_bytes(), signature.dtype, ranks, shape, table,
                             tuning_key_of(signature))});
  return plan;
}

}  // namespace arcomm
