// The image's kernels: one per algorithm, type and operation, under the names that
// in_stream_kernel_name() gives them.
#include "kernels/in_stream/one_shot_ll128.cuh"
#include "kernels/in_stream/one_shot_ll16.cuh"
#include "kernels/in_stream/pair_ll128.cuh"
#include "kernels/in_stream/two_shot_ll128.cuh"

namespace arcomm::device {
#define ARC_DIRECT_KERNELS(type, Format, operation, kOp)                                      \
  extern "C" __global__ void __launch_bounds__(kInStreamBlockThreads)                         \
      arcomm_one_shot_ll16_##type##_##operation(const __grid_constant__ InStreamCall call) {  \
    one_shot_ll16<Format, kOp>(call);                                                         \
  }                                                                                           \
  extern "C" __global__ void __launch_bounds__(kInStreamBlockThreads)                         \
      arcomm_one_shot_ll128_##type##_##operation(const __grid_constant__ InStreamCall call) { \
    one_shot_ll128<Format, kOp, 4>(call);                                                     \
  }                                                                                           \
  extern "C" __global__ void __launch_bounds__(kInStreamBlockThreads)                         \
      arcomm_pair_ll128_##type##_##operation(const __grid_constant__ InStreamCall call) {     \
    pair_ll128<Format, kOp>(call);                                                            \
  }                                                                                           \
  extern "C" __global__ void __launch_bounds__(kInStreamBlockThreads)                         \
      arcomm_two_shot_ll128_##type##_##operation(const __grid_constant__ InStreamCall call) { \
    two_shot_ll128<Format, kOp, 4>(call);                                                     \
  }
#define ARC_DIRECT_TYPE(type, Format)                    \
  ARC_DIRECT_KERNELS(type, Format, sum, ReduceOp::Sum)   \
  ARC_DIRECT_KERNELS(type, Format, prod, ReduceOp::Prod) \
  ARC_DIRECT_KERNELS(type, Format, min, ReduceOp::Min)   \
  ARC_DIRECT_KERNELS(type, Format, max, ReduceOp::Max)   \
  ARC_DIRECT_KERNELS(type, Format, avg, ReduceOp::Avg)

extern "C" __global__ void arcomm_wait_behind(const __grid_constant__ InStreamCall call) {
  grid_dependency_wait();
  __shared__ BlockState state;
  state.taken = 0;
  state.over = 0;
  InStreamBudget budget({call, state});
  while (static_cast<std::int32_t>(load_acquire(call.left) - call.behind) < 0) {
    if (!budget.goes_on(call.rank)) return;
  }
}

ARC_DIRECT_TYPE(float16, Float16)
ARC_DIRECT_TYPE(bfloat16, BFloat16)
ARC_DIRECT_TYPE(float32, Plain<float>)

}  // namespace arcomm::device
