#include "kernels/device/ptx.cuh"
#include "tests/gpu/soak/soak_kernels.h"

namespace arcomm::gpu {
namespace {

constexpr unsigned kThreads = 256;
constexpr std::uint64_t kMostBlocks = 264;

__global__ void compare_kernel(const std::uint32_t* got, const std::uint32_t* expected,
                               std::uint64_t words, Looked at, Findings* findings) {
  const std::uint64_t step = std::uint64_t{gridDim.x} * blockDim.x;
  for (std::uint64_t word = std::uint64_t{blockIdx.x} * blockDim.x + threadIdx.x; word < words;
       word += step) {
    const std::uint32_t here = got[word], wanted = expected[word];
    if (here == wanted) continue;
    const unsigned long long place = atomicAdd(&findings->wrong, 1ull);
    if (place >= Findings::kKept) continue;
    WrongWord& kept = findings->kept[place];
    kept.at = at;
    kept.word = word;
    kept.got = here;
    kept.expected = wanted;
  }
}

__global__ void spin_kernel(std::uint64_t nanoseconds) {
  const std::uint64_t begin = device::global_nanoseconds();
  while (device::global_nanoseconds() - begin < nanoseconds) {
  }
}

}  // namespace

cudaError_t compare(const std::uint32_t* got, const std::uint32_t* expected, std::uint64_t words,
                    const Looked& at, Findings* findings, cudaStream_t stream) {
  const std::uint64_t blocks = (words + kThreads - 1) / kThreads;
  compare_kernel<<<static_cast<unsigned>(blocks < kMostBlocks ? blocks : kMostBlocks), kThreads, 0,
                   stream>>>(got, expected, words, at, findings);
  return cudaGetLastError();
}

cudaError_t spin(std::uint32_t microseconds, cudaStream_t stream) {
  spin_kernel<<<1, 1, 0, stream>>>(std::uint64_t{microseconds} * 1000);
  return cudaGetLastError();
}

}  // namespace arcomm::gpu
