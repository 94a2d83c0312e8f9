// How far off one rank's values may be with a codec: the bounds that arclient.h publishes, from its
// words and the codecs' rows alone, by other code than the codecs have. Pure; any thread.
#pragma once

#include <span>

#include "proto/types.h"

namespace arcomm::arctl {

// Of the values of one block, its last ones zeros where it is not full. Zeros without a codec.
void codec_bounds(Codec codec, std::span<const float, kCodecBlock> values,
                  std::span<double, kCodecBlock> bounds);

}  // namespace arcomm::arctl
