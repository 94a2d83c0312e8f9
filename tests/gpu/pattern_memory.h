// A pattern in memory: uploaded to the GPU from any of its elements on, and looked for in what came
// back.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "tests/gpu/client_pattern.h"

namespace arcomm::gpu {

// What this rank sends: `count` elements of the pattern from its element `shift` on, which makes
// many inputs of one pattern. 0 <= shift < kPeriod; the pattern stays until the stream has it.
void upload(const Pattern& pattern, std::uint64_t shift, std::byte* to, std::uint64_t count,
            cudaStream_t stream);

// Of `count` elements at `got`, which are those from element `first` of a result on: in words, the
// first that is not what the pattern and `shift` must give.
std::optional<std::string> difference(const Pattern& pattern, std::uint64_t shift,
                                      const std::byte* got, std::uint64_t first,
                                      std::uint64_t count);

}  // namespace arcomm::gpu
