// What a client's stream does for one operation, bare: rings at its member's doorbell and waits for
// `done`. For tests of the resident grid without a client library.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "proto/gpu/device_mailbox.h"

namespace arcomm::gpu {

// `times` operations of plan `plan` one after the other, on the current GPU. Ends early when the
// mailbox is closed, or after two seconds.
cudaError_t post(DeviceMailbox* mailbox, std::uint32_t plan, std::uint32_t times,
                 cudaStream_t stream);
// Rings with a number of the caller's and does not wait.
cudaError_t ring(DeviceMailbox* mailbox, Doorbell doorbell, cudaStream_t stream);

}  // namespace arcomm::gpu
