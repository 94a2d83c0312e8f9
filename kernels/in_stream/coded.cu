// A codec's image: a kernel for each algorithm and type, under the names that
// in_stream_kernel_name() gives them. Compiled once for each codec, which ARC_CODEC names as
// proto/types.h does and ARC_CODEC_TEXT as people do. What an operation divides by is looked up in
// the call: a kernel for each would be twice as many.
#include "kernels/in_stream/coded_pair.cuh"
#include "kernels/in_stream/coded_two_shot.cuh"

namespace arcomm::device {
namespace {

template <typename Format>
__device__ __forceinline__ void run_pair(const InStreamCall& call) {
  __shared__ BlockState state;
  InStreamExchange exchange(call, state);
  const Divisor divisor = call.op() == ReduceOp::Avg ? Divisor(2) : Divisor(1);
  coded_pair<CodedOf<Format, Codec::ARC_CODEC>>(exchange, can_move_vectors(call), divisor);
}

template <typename Format>
__device__ __forceinline__ void run_two_shot(const InStreamCall& call) {
  __shared__ BlockState state;
  InStreamExchange exchange(call, state);
  using Coded = CodedOf<Format, Codec::ARC_CODEC>;
  const Divisor divisor(call.op() == ReduceOp::Avg ? call.ranks : 1);
  coded_two_shot<Coded>(exchange, CodedShards<Coded>(call), divisor);
}

}  // namespace

#define ARC_CODED_KERNELS(type, Format, codec)                                            \
  extern "C" __global__ void __launch_bounds__(kInStreamBlockThreads, 1)                  \
      arcomm_pair_ll128_##type##_##codec(const __grid_constant__ InStreamCall call) {     \
    run_pair<Format>(call);                                                               \
  }                                                                                       \
  extern "C" __global__ void __launch_bounds__(kInStreamBlockThreads, 1)                  \
      arcomm_two_shot_ll128_##type##_##codec(const __grid_constant__ InStreamCall call) { \
    run_two_shot<Format>(call);                                                           \
  }
#define ARC_CODED_TYPE(type, Format, codec) ARC_CODED_KERNELS(type, Format, codec)

ARC_CODED_TYPE(float16, Float16, ARC_CODEC_TEXT)
ARC_CODED_TYPE(bfloat16, BFloat16, ARC_CODEC_TEXT)
ARC_CODED_TYPE(float32, Plain<float>, ARC_CODEC_TEXT)

}  // namespace arcomm::device
