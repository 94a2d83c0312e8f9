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

__device__ __forceinline__ void store_relaxed(std::uint32_t* address, std::uint32_t value) {
  asm volatile("st.relaxed.sys.global.u32 [%0], %1;" ::"l"(address), "r"(value) : "memory");
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

// All of this GPU sees what this thread knows to have been written, by itself or by others, before
// it sees what the thread stores behind the fence. Lighter than __threadfence(), which also puts
// the fences of all threads into one order.
__device__ __forceinline__ void fence_on_gpu() {
  asm volatile("fence.acq_rel.gpu;" ::: "memory");
}

// The grid that is launched early behind this one may begin once every block of this one has called
// this or has ended. Nothing in code of PTX before 9.0, whose host launches nothing early:
// proto/gpu/early_launch.h.
__device__ __forceinline__ void trigger_dependents() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

// __syncthreads() and __syncthreads_or() for `threads` threads of the block, whole warps, which
// meet at the barrier of that number; 0 is the block's own.
__device__ __forceinline__ void sync_some(std::uint32_t barrier, std::uint32_t threads) {
  __syncwarp();
  asm volatile("barrier.cta.sync.aligned %0, %1;" ::"r"(barrier), "r"(threads) : "memory");
}

__device__ __forceinline__ bool sync_some_or(std::uint32_t barrier, std::uint32_t threads,
                                             bool mine) {
  std::uint32_t any;
  __syncwarp();
  asm volatile(
      "{\n\t.reg .pred mine, any;\n\t"
      "setp.ne.u32 mine, %3, 0;\n\t"
      "barrier.cta.red.or.pred.aligned any, %1, %2, mine;\n\t"
      "selp.u32 %0, 1, 0, any;\n\t}"
      : "=r"(any)
      : "r"(barrier), "r"(threads), "r"(static_cast<std::uint32_t>(mine))
      : "memory");
  return any != 0;
}

// Returns when what was launched before this grid in its stream has ended, and all that it wrote is
// there. For grids that may be launched early; nothing in code of PTX before 9.0, as above.
__device__ __forceinline__ void grid_dependency_wait() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
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

// Loads what others are known to have written, maybe since this SM's L1 was emptied.
template <typename T>
__device__ __forceinline__ T load_past_l1(const T* address) {
  static_assert(sizeof(T) <= 16);
  T value;
  if constexpr (sizeof(T) == 1) {
    std::uint32_t word;
    asm volatile("ld.global.cg.u8 %0, [%1];" : "=r"(word) : "l"(address) : "memory");
    value = static_cast<T>(word);
  } else if constexpr (sizeof(T) == 2) {
    std::uint16_t word;
    asm volatile("ld.global.cg.u16 %0, [%1];" : "=h"(word) : "l"(address) : "memory");
    value = static_cast<T>(word);
  } else if constexpr (sizeof(T) == 4) {
    std::uint32_t word;
    asm volatile("ld.global.cg.u32 %0, [%1];" : "=r"(word) : "l"(address) : "memory");
    __builtin_memcpy(&value, &word, sizeof(T));
  } else if constexpr (sizeof(T) == 8) {
    std::uint64_t word;
    asm volatile("ld.global.cg.u64 %0, [%1];" : "=l"(word) : "l"(address) : "memory");
    __builtin_memcpy(&value, &word, sizeof(T));
  } else {
    uint4 words;
    asm volatile("ld.global.cg.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(words.x), "=r"(words.y), "=r"(words.z), "=r"(words.w)
                 : "l"(address)
                 : "memory");
    __builtin_memcpy(&value, &words, sizeof(T));
  }
  return value;
}

// Copies 16 bytes into shared memory, past L1 and the registers; both addresses are multiples
// of 16. The thread that asked may read them once wait_for_copies() has let it pass their group.
__device__ __forceinline__ void copy_async(uint4* shared, const uint4* global) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(
                   static_cast<std::uint32_t>(__cvta_generic_to_shared(shared))),
               "l"(global)
               : "memory");
}

// Makes one group of all copies that the thread asked for since its last call.
__device__ __forceinline__ void commit_copies() {
  asm volatile("cp.async.commit_group;" ::: "memory");
}

// Waits until all groups but the latest kPending have arrived.
template <int kPending>
__device__ __forceinline__ void wait_for_copies() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kPending) : "memory");
}

// (word & mask) | more, with one instruction: of two constants the compiler makes two.
__device__ __forceinline__ std::uint32_t bits_of_both(std::uint32_t word, std::uint32_t mask,
                                                      std::uint32_t more) {
  std::uint32_t bits;
  asm("lop3.b32 %0, %1, %2, %3, 0xea;" : "=r"(bits) : "r"(word), "r"(mask), "r"(more));
  return bits;
}

// 1 / value, off by its last bit at most, where both are normal numbers; without rcp.rn's code for
// where they are not.
__device__ __forceinline__ float approximate_inverse(float value) {
  float inverse;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(inverse) : "f"(value));
  return inverse;
}

__device__ __forceinline__ std::uint64_t global_nanoseconds() {
  std::uint64_t now;
  asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now));
  return now;
}

}  // namespace arcomm::device
