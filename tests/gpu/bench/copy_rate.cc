#include "tests/gpu/bench/copy_rate.h"

#include <cuda_runtime_api.h>

#include <algorithm>
#include <array>
#include <cstddef>

namespace arcomm::gpu {
namespace {

constexpr std::size_t kBytes = 256 << 20;
constexpr int kCopyRounds = 5, kCopies = 8;

// From one GPU to the other, on a stream of the one that sends.
class Direction {
 public:
  bool open(int from, int to) {
    from_ = from;
    to_ = to;
    int reaches = 0;
    if (!ok(cudaDeviceCanAccessPeer(&reaches, from, to)) || reaches == 0) return false;
    if (!ok(cudaSetDevice(to)) || !ok(cudaMalloc(&target_, kBytes))) return false;
    if (!ok(cudaSetDevice(from)) || !ok(cudaMalloc(&source_, kBytes))) return false;
    const cudaError_t enabled = cudaDeviceEnablePeerAccess(to, 0);
    if (!ok(enabled) && enabled != cudaErrorPeerAccessAlreadyEnabled) return false;
    return ok(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking)) &&
           ok(cudaEventCreate(&begin_)) && ok(cudaEventCreate(&end_));
  }
  ~Direction() {
    if (begin_ != nullptr) cudaEventDestroy(begin_);
    if (end_ != nullptr) cudaEventDestroy(end_);
    if (stream_ != nullptr) cudaStreamDestroy(stream_);
    cudaFree(source_);
    cudaFree(target_);
  }

  bool start() {
    bool done = ok(cudaSetDevice(from_)) && copy() && ok(cudaEventRecord(begin_, stream_));
    for (int i = 0; i < kCopies; ++i) done = done && copy();
    return done && ok(cudaEventRecord(end_, stream_));
  }
  bool finish(float& ms) {
    return ok(cudaEventSynchronize(end_)) && ok(cudaEventElapsedTime(&ms, begin_, end_));
  }

 private:
  // The runtime's last error is cleared: who asks for a rate that cannot be had goes on.
  static bool ok(cudaError_t result) {
    if (result != cudaSuccess) cudaGetLastError();
    return result == cudaSuccess;
  }
  bool copy() { return ok(cudaMemcpyPeerAsync(target_, to_, source_, from_, kBytes, stream_)); }

  int from_ = 0, to_ = 0;
  void *source_ = nullptr, *target_ = nullptr;
  cudaStream_t stream_ = nullptr;
  cudaEvent_t begin_ = nullptr, end_ = nullptr;
};

}  // namespace

std::optional<double> peer_copy_gbs(int one, int other) {
  std::array<Direction, 2> ways;
  if (!ways[0].open(one, other) || !ways[1].open(other, one)) return std::nullopt;
  double best = 0;
  for (int round = 0; round < kCopyRounds; ++round) {
    if (!ways[0].start() || !ways[1].start()) return std::nullopt;
    float slowest = 0;
    for (Direction& way : ways) {
      float ms = 0;
      if (!way.finish(ms)) return std::nullopt;
      slowest = std::max(slowest, ms);
    }
    const double seconds = static_cast<double>(slowest) * 1e-3;
    if (seconds > 0) best = std::max(best, static_cast<double>(kBytes) * kCopies / seconds * 1e-9);
  }
  return best > 0 ? std::optional(best) : std::nullopt;
}

}  // namespace arcomm::gpu
