// Another process's GPU memory in this one: by a descriptor (allocated with the driver's virtual
// memory functions) or by a CUDA IPC handle (any cudaMalloc). What a client says about it is
// checked against what the driver says. Threads: as Device.
#pragma once

#include <span>

#include "proto/memory_handle.h"
#include "proto/status.h"
#include "transport/device/memory.h"

namespace arcomm {

// As Device::import, for the GPU `home`. The GPUs of `accessible_from` reach the memory: by a
// mapping of their own, or, where it comes by an IPC handle, by the peer access that
// CudaDevice::create enables.
Result<Memory> import_cuda_memory(const MemoryHandle& handle, int descriptor, int home,
                                  std::span<const int> accessible_from);

}  // namespace arcomm
