// What was measured, beside ranks, size and type: points of one collective and codec say nothing of
// another's. A value.
#pragma once

#include <compare>

#include "proto/operation_spec.h"
#include "proto/types.h"

namespace arcomm {

struct TuningKey {
  Collective collective = Collective::AllReduce;
  Codec codec = Codec::None;
  friend bool operator==(const TuningKey&, const TuningKey&) = default;
  friend auto operator<=>(const TuningKey&, const TuningKey&) = default;
};

inline TuningKey tuning_key_of(const OperationSpec& spec) {
  return {spec.collective, spec.codec};
}

}  // namespace arcomm
