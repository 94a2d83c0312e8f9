// Why the planner would choose what it chooses: for `arctl tune --explain SIZE`.
#pragma once

#include <cstdint>
#include <string>

#include "daemon/plan/planner.h"
#include "daemon/plan/tuning_table.h"
#include "proto/types.h"

namespace arcomm {

struct Explanation {
  std::string text;  // a few lines for people
  Algorithm chosen = Algorithm::Direct;
  Algorithm runner_up = Algorithm::Direct;  // equal to `chosen` where there is no other
  double chosen_microseconds = 0;           // 0 where never measured
  double runner_up_microseconds = 0;
};

Explanation explain(const TuningTable& table, const DeviceShape& shape, std::uint32_t ranks,
                    std::uint64_t bytes, DType dtype);

}  // namespace arcomm
