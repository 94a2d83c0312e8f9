// All inline assembly of the GPU kernels. Suffixes as in PTX: relaxed or release/acquire, at system
// scope, since the other side is another GPU.
#pragma once

#include <cstdint>

namespace arcomm::device {

__device__ __forceinline__ void store_release(std::uint32_t* address, std::uint32_t value) {
  asm volatile("st.release.sys.global.u32 [%0], %1;" ::"l"(address), "r"(value) : "memory");
}

__device__ __forceinline__ void store_release(std::uint64_t* address, std::uint64_t value) {
  asm volatile("st.release.sys.global.u64 [%0], %1;" ::"l"(address), "l"(value) : "memory");
}

__device__ __forceinline__ void store_relaxed(std::uint64_t* address, std::uint64_t value) {
  asm volatile("st.relaxed.sys.global.u64 [%0], %1;" ::"l"(address), "l"(value) : "memory");
}

__device__ __forceinline__ std::uint64_t load_acquire(const std::uint64_t* address) {
  std::uint64_t value;
  asm volatile("ld.acquire.sys.global.u64 %0, [%1];" : "=l"(value) : "l"(address) : "memory");
  return value;
}

__device__ __forceinline__ std::uint32_t load_acquire(const std::uint32_t* address) {
  std::uint32_t value;
  asm volatile("ld.acquire.sys.global.u32 %0, [%1];" : "=r"(value) : "l"(address) : "memory");
  return value;
}

__device__ __forceinline__ std::uint32_t load_relaxed(const std::uint32_t* address) {
  std::uint32_t value;
  asm volatile("ld.relaxed.sys.global.u32 %0, [%1];" : "=r"(value) : "l"(address) : "memory");
  return value;
}

__device__ __forceinline__ std::uint64_t load_relaxed(const std::uint64_t* address) {
  std::uint64_t value;
  asm volatile("ld.relaxed.sys.global.u64 %0, [%1];" : "=l"(value) : "l"(address) : "memory");
  return value;
}

// What is launched behind this grid without waiting for its end may begin, once every block of it
// has said so or has ended.
__device__ __forceinline__ void let_next_launch_begin() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

// Volatile, as these accesses must neither be merged nor kept in L1; the 8-byte halves are each
// written and read whole, which is all that the flags beside the data need.
__device__ __forceinline__ void store_line(uint4* address, uint4 line) {
  asm volatile("st.volatile.global.v4.u32 [%0], {%1, %2, %3, %4};" ::"l"(address), "r"(line.x),
               "r"(line.y), "r"(line.z), "r"(line.w)
               : "memory");
}

__device__ __forceinline__ uint4 load_line(const uint4* address) {
  uint4 line;
  asm volatile("ld.volatile.global.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(line.x), "=r"(line.y), "=r"(line.z), "=r"(line.w)
               : "l"(address)
               : "memory");
  return line;
}

// 16 bytes into shared memory, past L1 and the registers; both aligned to that. They are there for
// the thread that asked once wait_for_copies() has let it pass its group.
__device__ __forceinline__ void copy_async(uint4* shared, const uint4* global) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(
                   static_cast<std::uint32_t>(__cvta_generic_to_shared(shared))),
               "l"(global)
               : "memory");
}

// What the thread asked for since the last call is one group.
__device__ __forceinline__ void commit_copies() {
  asm volatile("cp.async.commit_group;" ::: "memory");
}

// Until all groups but the latest kPending are there.
template <int kPending>
__device__ __forceinline__ void wait_for_copies() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kPending) : "memory");
}

__device__ __forceinline__ std::uint64_t global_nanoseconds() {
  std::uint64_t now;
  asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now));
  return now;
}

}  // namespace arcomm::device
