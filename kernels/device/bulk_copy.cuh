// Copies that an SM's copy engine makes by itself (Hopper and later), and the barriers in
// shared memory that they report to. Before Hopper nothing here may run.
//
// The engine reaches memory by a way of its own: what threads have written to shared memory, or
// have learned from another GPU, is made known to it by order_copies_behind_accesses().
#pragma once

#include <cstdint>

namespace arcomm::device {

__device__ __forceinline__ std::uint32_t shared_address(const void* shared) {
  return static_cast<std::uint32_t>(__cvta_generic_to_shared(shared));
}

// In shared memory. A phase ends once as many have arrived as it was made for, and all bytes that
// were expected have come; phases alternate between parity 0, the first, and 1.
class PhaseBarrier {
 public:
  __device__ __forceinline__ void init(std::uint32_t arrivals) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_address(&word_)),
                 "r"(arrivals)
                 : "memory");
  }
  __device__ __forceinline__ void arrive() {
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(shared_address(&word_))
                 : "memory");
  }
  __device__ __forceinline__ void arrive_expecting(std::uint32_t bytes) {
#if __CUDA_ARCH__ >= 900
    asm volatile(
        "mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(&word_)),
        "r"(bytes)
        : "memory");
#endif
  }
  // May wait a moment before it says no.
  __device__ __forceinline__ bool has_ended(std::uint32_t parity) const {
    std::uint32_t ended = 1;
#if __CUDA_ARCH__ >= 900
    asm volatile(
        "{\n .reg .pred ended;\n"
        " mbarrier.try_wait.parity.shared::cta.b64 ended, [%1], %2;\n"
        " selp.u32 %0, 1, 0, ended;\n}"
        : "=r"(ended)
        : "r"(shared_address(&word_)), "r"(parity)
        : "memory");
#endif
    return ended != 0;
  }
  __device__ __forceinline__ const std::uint64_t* word() const {
    return &word_;
  }

 private:
  std::uint64_t word_;
};

// Both addresses and the size are multiples of 16 bytes. `ended` counts what has come.
__device__ __forceinline__ void bulk_load(void* shared, const void* global, std::uint32_t bytes,
                                          const PhaseBarrier& ended) {
#if __CUDA_ARCH__ >= 900
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, "
      "[%3];" ::"r"(shared_address(shared)),
      "l"(global), "r"(bytes), "r"(shared_address(ended.word()))
      : "memory");
#endif
}

// Both addresses and the size are multiples of 16 bytes.
__device__ __forceinline__ void bulk_store(void* global, const void* shared, std::uint32_t bytes) {
#if __CUDA_ARCH__ >= 900
  asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" ::"l"(global),
               "r"(shared_address(shared)), "r"(bytes)
               : "memory");
#endif
}
// Until all that the thread has stored so is written; others learn of it by a release.
__device__ __forceinline__ void wait_for_bulk_stores() {
#if __CUDA_ARCH__ >= 900
  asm volatile("cp.async.bulk.commit_group;" ::: "memory");
  asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
#endif
}

__device__ __forceinline__ void order_copies_behind_accesses() {
#if __CUDA_ARCH__ >= 900
  asm volatile("fence.proxy.async;" ::: "memory");
#endif
}

}  // namespace arcomm::device
