#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstring>
#include <utility>

#include "kernels/device/ptx.cuh"
#include "kernels/launch/cuda_queue.h"
#include "kernels/launch/pinned_page.h"
#include "kernels/lines/ll128_layout.h"
#include "kernels/lines/ll128_self_test.h"

namespace arcomm {
namespace {

using device::load_acquire;
using device::load_line;
using device::load_relaxed;
using device::store_line;
using device::store_release;

constexpr std::uint32_t kBlocks = 8;
constexpr std::uint32_t kThreads = 256;
constexpr std::uint32_t kWarps = kBlocks * kThreads / kLl128Lanes;
constexpr std::uint32_t kRounds = 16 * 1024;
constexpr std::uint32_t kAllLanes = 0xffff'ffffU;

struct Area {
  uint4 packets[kWarps][kLl128PacketBytes / sizeof(uint4)];
  // Behind the lines; zero at first.
  alignas(kLl128LineBytes) std::uint32_t reader_is_there;
  std::uint32_t unfinished;  // warps whose last round did not come
  unsigned long long changes, torn;
};
static_assert(sizeof(Area) <= kLl128TestBytes);

__device__ std::uint32_t warp_of_grid() {
  return (blockIdx.x * kThreads + threadIdx.x) / kLl128Lanes;
}

// A word by which a reader knows that data lies where it belongs.
__device__ std::uint32_t mark(std::uint32_t lane, std::uint32_t group) {
  return 0x9e37'79b9U * (1 + (warp_of_grid() * 2 + group) * kLl128Lanes + lane);
}

// Every warp stores its packet over and over, as fast as it can, each time with the next number in
// every 8 bytes.
__global__ void __launch_bounds__(kThreads) write_lines(Area* area, std::uint64_t timeout_ns) {
  const std::uint32_t lane = threadIdx.x % kLl128Lanes;
  const std::uint64_t began = device::global_nanoseconds();
  while (load_acquire(&area->reader_is_there) == 0) {
    if (device::global_nanoseconds() - began > timeout_ns) break;
  }
  uint4* packet = area->packets[warp_of_grid()];
  const std::uint32_t marks[2] = {mark(lane, 0), mark(lane, 1)};
  for (std::uint32_t round = 1; round <= kRounds; ++round) {
    __syncwarp();
#pragma unroll
    for (std::uint32_t group = 0; group < 2; ++group) {
      const std::uint32_t last = ll128_has_flag(lane) ? round : marks[group];
      store_line(packet + group * kLl128Lanes + lane, {round, marks[group], round, last});
    }
  }
}

// Looks at the same packet all the time. Data may be newer than its flag says, but not older.
__global__ void __launch_bounds__(kThreads) read_lines(Area* area, std::uint64_t timeout_ns) {
  if (blockIdx.x == 0 && threadIdx.x == 0) store_release(&area->reader_is_there, 1U);
  const std::uint32_t lane = threadIdx.x % kLl128Lanes;
  const uint4* packet = area->packets[warp_of_grid()];
  const std::uint32_t marks[2] = {mark(lane, 0), mark(lane, 1)};
  const std::uint64_t began = device::global_nanoseconds();
  std::uint32_t seen[2] = {0, 0};
  std::uint32_t changes = 0, torn = 0;
  bool ended = false;
  for (std::uint32_t looks = 1; !ended; ++looks) {
    __syncwarp();
    uint4 lines[2];
#pragma unroll
    for (std::uint32_t group = 0; group < 2; ++group)
      lines[group] = load_line(packet + group * kLl128Lanes + lane);
    bool at_end = true;
#pragma unroll
    for (std::uint32_t group = 0; group < 2; ++group) {
      const uint4& line = lines[group];
      const std::uint32_t flag = __shfl_sync(kAllLanes, line.z, lane | 7U);
      if (flag != seen[group] && ll128_has_flag(lane)) ++changes;
      const bool misplaced =
          line.y != marks[group] || line.w != (ll128_has_flag(lane) ? line.z : marks[group]);
      if (flag != 0 && (line.x < flag || line.z < flag || misplaced)) ++torn;
      seen[group] = flag;
      at_end &= flag == kRounds;
    }
    ended = __all_sync(kAllLanes, at_end) != 0;
    if (!ended && looks % 128 == 0) {
      const bool late = lane == 0 && device::global_nanoseconds() - began > timeout_ns;
      if (__any_sync(kAllLanes, late) != 0) break;
    }
  }
  if (changes != 0) atomicAdd(&area->changes, changes);
  if (torn != 0) atomicAdd(&area->torn, torn);
  if (!ended && lane == 0) atomicAdd(&area->unfinished, 1U);
}

Status check(cudaError_t result, const char* what, int writer, int reader) {
  if (result == cudaSuccess) return {};
  return error(ErrorCode::Internal, Reason::None, "trying 128-byte stores from GPU ", writer,
               " to GPU ", reader, ", ", what, ": ", cudaGetErrorName(result), " (",
               cudaGetErrorString(result), ")");
}

}  // namespace

Result<Ll128Verdict> test_ll128_lines(int writer, int reader, void* memory,
                                      std::chrono::nanoseconds timeout) {
  auto* area = static_cast<Area*>(memory);
  const auto timeout_ns = static_cast<std::uint64_t>(timeout.count());
  const auto checked = [&](cudaError_t result, const char* what) {
    return check(result, what, writer, reader);
  };
  auto writes = CudaQueue::create(writer);
  if (!writes) return std::move(writes).error();
  auto reads = CudaQueue::create(reader);
  if (!reads) return std::move(reads).error();
  auto page = PinnedPage::create(sizeof(Area) - offsetof(Area, reader_is_there));
  if (!page) return std::move(page).error();
  const auto write_stream = static_cast<cudaStream_t>(writes->stream());
  const auto read_stream = static_cast<cudaStream_t>(reads->stream());

  // Loaded before either runs: the one waits for the other.
  cudaFuncAttributes attributes;
  ARC_RETURN_IF_ERROR(writes->make_current());
  ARC_RETURN_IF_ERROR(checked(cudaFuncGetAttributes(&attributes, write_lines), "loading"));
  ARC_RETURN_IF_ERROR(reads->make_current());
  ARC_RETURN_IF_ERROR(checked(cudaFuncGetAttributes(&attributes, read_lines), "loading"));
  ARC_RETURN_IF_ERROR(checked(cudaMemsetAsync(area, 0, sizeof(Area), read_stream), "clearing"));
  ARC_RETURN_IF_ERROR(reads->drain(timeout));

  read_lines<<<kBlocks, kThreads, 0, read_stream>>>(area, timeout_ns);
  ARC_RETURN_IF_ERROR(checked(cudaGetLastError(), "launching the reader"));
  ARC_RETURN_IF_ERROR(writes->make_current());
  write_lines<<<kBlocks, kThreads, 0, write_stream>>>(area, timeout_ns);
  const Status launched = checked(cudaGetLastError(), "launching the writer");
  // Waited for whatever happened, so that nothing uses the caller's memory any more.
  const Status written = writes->drain(2 * timeout);
  const Status read = reads->drain(2 * timeout);
  ARC_RETURN_IF_ERROR(launched);
  ARC_RETURN_IF_ERROR(written);
  ARC_RETURN_IF_ERROR(read);

  constexpr std::size_t kFrom = offsetof(Area, reader_is_there);
  ARC_RETURN_IF_ERROR(reads->make_current());
  ARC_RETURN_IF_ERROR(
      checked(cudaMemcpyAsync(page->host(), reinterpret_cast<std::byte*>(area) + kFrom,
                              sizeof(Area) - kFrom, cudaMemcpyDeviceToHost, read_stream),
              "reading the result"));
  ARC_RETURN_IF_ERROR(reads->drain(timeout));
  const auto counted = [&](std::size_t offset, auto& value) {
    std::memcpy(&value, static_cast<std::byte*>(page->host()) + (offset - kFrom), sizeof(value));
  };
  std::uint32_t unfinished = 0;
  unsigned long long changes = 0, torn = 0;
  counted(offsetof(Area, unfinished), unfinished);
  counted(offsetof(Area, changes), changes);
  counted(offsetof(Area, torn), torn);
  if (unfinished != 0) {
    return error(ErrorCode::DeadlineExceeded, Reason::Timeout, "trying 128-byte stores from GPU ",
                 writer, " to GPU ", reader, ": ", unfinished, " of ", kWarps,
                 " warps did not see the last of them in time");
  }
  return Ll128Verdict{.changes = changes, .torn = torn};
}

}  // namespace arcomm
