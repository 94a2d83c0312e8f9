#include "daemon/plan/recorded_algorithm.h"

#include <iterator>

#include "daemon/plan/gpu_paths.h"

namespace arcomm {

std::string_view name_of_recorded(std::uint8_t algorithm) {
  if (algorithm == kResidentKernel) return kResidentName;
  if (algorithm == kInStreamKernel) return kInStreamName;
  if (algorithm < catalog().size()) return name_of(static_cast<Algorithm>(algorithm));
  if (algorithm < kFirstNetworkAlgorithm) return {};
  if (algorithm < kFirstCudaAlgorithm) {
    const std::size_t index = algorithm - kFirstNetworkAlgorithm;
    return index < std::size(kNetworkAlgorithms) ? text_of(kNetworkAlgorithms[index])
                                                 : std::string_view();
  }
  const std::size_t index = algorithm - kFirstCudaAlgorithm;
  return index < cuda_algorithms().size() ? cuda_algorithms()[index].name : std::string_view();
}

}  // namespace arcomm
