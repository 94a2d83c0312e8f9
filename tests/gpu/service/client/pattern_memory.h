// A pattern in memory: uploaded to the GPU, and looked for in what came back.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "tests/gpu/service/client/client_pattern.h"

namespace arcomm::gpu {

// What this rank sends: `count` elements of the pattern, which stays until the stream has it.
void upload(const Pattern& pattern, std::byte* to, std::uint64_t count, cudaStream_t stream);

// Of the `count` elements of a result at `got`: in words, the first that is not what the pattern
// must give.
std::optional<std::string> difference(const Pattern& pattern, const std::byte* got,
                                      std::uint64_t count);

}  // namespace arcomm::gpu
