// The kernels that need no codec: one per algorithm, type and operation, under the names that
// in_stream_kernel_name() gives them. coded.cu has the others.
#include "kernels/all_reduce/one_shot_ll128.cuh"
#include "kernels/all_reduce/one_shot_ll16.cuh"
#include "kernels/all_reduce/two_shot_ll128.cuh"
#include "kernels/codec/plain.cuh"
#include "kernels/in_stream/exchange.cuh"
#include "kernels/in_stream/pair_ll128.cuh"
#include "proto/gpu/device_mailbox.h"

namespace arcomm::device {
namespace {

// Ranks whose packets are looked at together: four packets are 32 registers, and eight ranks are
// two such looks.
constexpr std::uint32_t kBatch = 4;

template <typename Codec, ReduceOp kOp>
__device__ __forceinline__ void run_one_shot_ll16(const InStreamCall& call) {
  __shared__ BlockState state;
  InStreamExchange exchange(call, state);
  one_shot_ll16<Codec, kOp>(exchange);
}

template <typename Codec, ReduceOp kOp>
__device__ __forceinline__ void run_one_shot_ll128(const InStreamCall& call) {
  __shared__ BlockState state;
  InStreamExchange exchange(call, state);
  one_shot_ll128<Codec, kOp, kBatch>(exchange, can_move_vectors(call));
}

template <typename Codec, ReduceOp kOp>
__device__ __forceinline__ void run_pair_ll128(const InStreamCall& call) {
  __shared__ BlockState state;
  InStreamExchange exchange(call, state);
  pair_ll128<Codec, kOp>(exchange, can_move_vectors(call));
}

template <typename Codec, ReduceOp kOp>
__device__ __forceinline__ void run_two_shot_ll128(const InStreamCall& call) {
  __shared__ BlockState state;
  InStreamExchange exchange(call, state);
  two_shot_ll128<Codec, kOp, kBatch>(exchange, InStreamShards<Codec>(call));
}

}  // namespace

// The kernels of one type and operation; `type` is what their names say.
#define ARC_IN_STREAM_KERNELS(type, Codec, operation, kOp)                                    \
  extern "C" __global__ void __launch_bounds__(kInStreamBlockThreads)                         \
      arcomm_one_shot_ll16_##type##_##operation(const __grid_constant__ InStreamCall call) {  \
    run_one_shot_ll16<Codec, kOp>(call);                                                      \
  }                                                                                           \
  extern "C" __global__ void __launch_bounds__(kInStreamBlockThreads)                         \
      arcomm_one_shot_ll128_##type##_##operation(const __grid_constant__ InStreamCall call) { \
    run_one_shot_ll128<Codec, kOp>(call);                                                     \
  }                                                                                           \
  extern "C" __global__ void __launch_bounds__(kInStreamBlockThreads)                         \
      arcomm_pair_ll128_##type##_##operation(const __grid_constant__ InStreamCall call) {     \
    run_pair_ll128<Codec, kOp>(call);                                                         \
  }                                                                                           \
  extern "C" __global__ void __launch_bounds__(kInStreamBlockThreads)                         \
      arcomm_two_shot_ll128_##type##_##operation(const __grid_constant__ InStreamCall call) { \
    run_two_shot_ll128<Codec, kOp>(call);                                                     \
  }
#define ARC_IN_STREAM_TYPE(type, Codec)                    \
  ARC_IN_STREAM_KERNELS(type, Codec, sum, ReduceOp::Sum)   \
  ARC_IN_STREAM_KERNELS(type, Codec, prod, ReduceOp::Prod) \
  ARC_IN_STREAM_KERNELS(type, Codec, min, ReduceOp::Min)   \
  ARC_IN_STREAM_KERNELS(type, Codec, max, ReduceOp::Max)   \
  ARC_IN_STREAM_KERNELS(type, Codec, avg, ReduceOp::Avg)

extern "C" __global__ void arcomm_wait_behind(const __grid_constant__ InStreamCall call) {
  grid_dependency_wait();
  __shared__ BlockState state;
  state.taken = 0;
  state.over = 0;
  InStreamBudget budget({call, state});
  // It waits for operations of its own rank, which give up by themselves, and tell so, and for the
  // caller's kernels ahead of them, which take what they take: its clock is far behind theirs, for
  // operations that never begin because what is ahead of them waits for this one.
  budget.grow((kTimeoutsForOwnOrder - 1) * call.timeout_ns);
  while (static_cast<std::int32_t>(load_acquire(call.left) - call.behind) < 0) {
    if (!budget.goes_on(call.rank)) return;
  }
}

// A type or collective that joins the sets of proto/gpu/in_stream_call.h gets rows
// here.
static_assert(kInStreamDTypes ==
                  (bit_of(DType::Float16) | bit_of(DType::BFloat16) | bit_of(DType::Float32)) &&
              kInStreamCollectives == bit_of(Collective::AllReduce));
ARC_IN_STREAM_TYPE(float16, PlainCodec<Float16>)
ARC_IN_STREAM_TYPE(bfloat16, PlainCodec<BFloat16>)
ARC_IN_STREAM_TYPE(float32, PlainCodec<Plain<float>>)

}  // namespace arcomm::device
