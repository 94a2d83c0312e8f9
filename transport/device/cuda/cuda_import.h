// Another process's GPU memory in this one: by a descriptor (allocated with the driver's virtual
// memory functions) or by a CUDA IPC handle (any cudaMalloc). What a client says about it is
// checked against what the driver says. Threads: as Device.
#pragma once

#include <span>

#include "proto/memory_handle.h"
#include "proto/status.h"
#include "transport/device/memory.h"

namespace arcomm {

// As Device::import, for the GPU `home`; the GPUs of `accessible_from`, `home` among them, reach
// the memory at Memory::data_on. An IPC handle does not tell which GPU its memory is on: it serves
// on every one, at the speed of the way there.
Status import_cuda_memory(const MemoryHandle& handle, int descriptor, int home,
                          std::span<const int> accessible_from, Memory& memory);

// As Device::import_chunks, with the same two.
Status import_cuda_chunks(std::span<const MemoryChunk> chunks, std::uint64_t offset_bytes,
                          std::uint64_t length_bytes, int home,
                          std::span<const int> accessible_from, Memory& memory);

}  // namespace arcomm
