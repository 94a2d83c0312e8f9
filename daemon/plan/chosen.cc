#include "daemon/plan/chosen.h"

#include "daemon/plan/explain.h"
#include "daemon/plan/planner.h"

namespace arcomm {
namespace {

constexpr DType kGpuTuneType = DType::BFloat16;  // of the operations that are measured

// Of the tiles that were measured of the point's size, those that stand for `tile_bytes`: the same,
// else the next larger ones, which the planner cuts smaller.
std::uint32_t standing_for(std::uint32_t tile_bytes, const TuningTable& table,
                           const TuningPoint& point) {
  std::uint32_t nearest = 0;
  for (const TuningPoint& other : table.points) {
    if (other.ranks != point.ranks || other.bytes != point.bytes ||
        other.type_class != point.type_class || other.algorithm != point.algorithm ||
        other.key != point.key)
      continue;
    const bool is_enough = other.tile_bytes >= tile_bytes;
    if (nearest < tile_bytes ? other.tile_bytes > nearest : is_enough && other.tile_bytes < nearest)
      nearest = other.tile_bytes;
  }
  return nearest;
}

}  // namespace

bool is_chosen(const TuningTable& table, const DeviceShape& shape, const TuningPoint& point) {
  const DType dtype = point.type_class == TypeClass::Half ? DType::BFloat16 : DType::Float32;
  const Choice choice = choose(point.bytes, dtype, point.ranks, shape, table, point.key);
  if (choice.algorithm != point.algorithm) return false;
  if (!entry_of(choice.algorithm).is_tiled) return true;
  // By the table, else by the rule that large operations are always cut.
  const TuningTable::Crossover* crossover = table.find(point.ranks, point.bytes, dtype, point.key);
  const bool is_measured = crossover != nullptr && crossover->algorithm == choice.algorithm;
  const std::uint32_t tile_bytes = is_measured ? crossover->tile_bytes : choice.tile_bytes;
  return point.tile_bytes == standing_for(tile_bytes, table, point);
}

bool is_chosen(const GpuTuningTable& table, std::optional<CudaAlgorithm> forced, bool in_stream,
               const GpuTuningPoint& point) {
  return explain(table, forced, point.ranks, point.bytes, kGpuTuneType, in_stream).chosen ==
         name_of(point.algorithm);
}

}  // namespace arcomm
