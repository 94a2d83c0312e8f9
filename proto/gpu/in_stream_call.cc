#include "proto/gpu/in_stream_call.h"

namespace arcomm {

const char* name_of(InStreamAlgorithm algorithm) {
  switch (algorithm) {
    case InStreamAlgorithm::OneShotLl16:
      return "one_shot_ll16";
    case InStreamAlgorithm::OneShotLl128:
      return "one_shot_ll128";
    case InStreamAlgorithm::TwoShotLl128:
      return "two_shot_ll128";
    case InStreamAlgorithm::PairLl128:
      return "pair_ll128";
  }
  return "none";
}

std::vector<InStreamKernel> all_in_stream_kernels(Codec codec) {
  std::vector<InStreamKernel> all;
  constexpr std::size_t kEach = std::size_t{kDTypes} * kReduceOps;
  for (std::size_t i = 0; i < kInStreamAlgorithms * kEach; ++i) {
    const InStreamKernel kernel{static_cast<InStreamAlgorithm>(i / kEach),
                                static_cast<DType>(i / kReduceOps % kDTypes),
                                static_cast<ReduceOp>(i % kReduceOps)};
    if (!has_in_stream_kernel(kernel.dtype) ||
        (in_stream_codecs(kernel.algorithm) & bit_of(codec)) == 0)
      continue;
    if (codec == Codec::None || (kInStreamCodecOps & bit_of(kernel.op)) != 0) all.push_back(kernel);
  }
  return all;
}

std::string in_stream_kernel_name(InStreamAlgorithm algorithm, DType dtype, ReduceOp op,
                                  Codec codec) {
  return std::string("arcomm_") + name_of(algorithm) + "_" + std::string(text_of(dtype)) + "_" +
         std::string(codec == Codec::None ? text_of(op) : text_of(codec));
}

}  // namespace arcomm
