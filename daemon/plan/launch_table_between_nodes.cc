#include "daemon/plan/launch_table_between_nodes.h"

#include <utility>
#include <vector>

#include "daemon/plan/recorded_algorithm.h"
#include "proto/gpu/in_stream_call.h"

namespace arcomm {

LaunchTable make_launch_table_between_nodes(const RanksOnNodes& where, NetworkAlgorithm algorithm,
                                            const NetworkPolicy& policy) {
  std::vector<LaunchRow> rows;
  if (policy.gpu_codecs)
    rows.push_back(
        {.dtypes = bit_of(DType::Float16) | bit_of(DType::BFloat16) | bit_of(DType::Float32),
         .ops = kInStreamCodecOps,
         .codecs = kAllCodecs & ~bit_of(Codec::None),
         .launched = recorded(algorithm)});
  rows.push_back({.launched = recorded(algorithm)});
  Result<LaunchTable> table =
      LaunchTable::create(where.ranks, std::move(rows), coding_rows_between_nodes(where, policy));
  return table ? std::move(table).value() : LaunchTable();
}

LaunchTable make_launch_table_between_hosts(const RanksOnNodes& where,
                                            const NetworkPolicy& policy) {
  Result<LaunchTable> table =
      LaunchTable::create(where.ranks, {{}}, coding_rows_between_nodes(where, policy));
  return table ? std::move(table).value() : LaunchTable();
}

}  // namespace arcomm
