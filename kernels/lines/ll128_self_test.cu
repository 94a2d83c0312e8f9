#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <utility>
#include <vector>

#include "kernels/device/launching.cuh"
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

Status check(cudaError_t result, const char* what, int reader) {
  if (result == cudaSuccess) return {};
  return error(ErrorCode::Internal, Reason::None, "trying 128-byte stores to GPU ", reader, ", ",
               what, ": ", cudaGetErrorName(result), " (", cudaGetErrorString(result), ")");
}

// A trial can miss what a bridge of PCI Express does to lines now and then, so it only confirms
// what is expected of NVLink. That is where atomics of peers are native.
Status check_nvlink(int writer, int reader) {
  if (writer == reader) return {};
  int native_atomics = 0;
  ARC_RETURN_IF_ERROR(
      check(cudaDeviceGetP2PAttribute(&native_atomics, cudaDevP2PAttrNativeAtomicSupported, writer,
                                      reader),
            "asking for the link", reader));
  if (native_atomics != 0) return {};
  return error(ErrorCode::Unavailable, Reason::Unsupported, "no NVLink from GPU ", writer,
               " to GPU ", reader, ": lines over PCI Express may be torn under load");
}

// What is left in an Area when both sides have ended.
struct Counts {
  std::uint32_t unfinished = 0;
  unsigned long long changes = 0, torn = 0;
};

}  // namespace

Result<Ll128Verdict> test_ll128_lines(std::span<const int> writers, int reader, void* memory,
                                      std::chrono::nanoseconds timeout) {
  const auto timeout_ns = static_cast<std::uint64_t>(timeout.count());
  const auto checked = [&](cudaError_t result, const char* what) {
    return check(result, what, reader);
  };
  const auto area_of = [&](std::size_t i) {
    return reinterpret_cast<Area*>(static_cast<std::byte*>(memory) + i * kLl128TestBytes);
  };
  std::vector<CudaQueue> writes, reads;  // one for each writer
  for (const int writer : writers) {
    ARC_RETURN_IF_ERROR(check_nvlink(writer, reader));
    for (auto [ordinal, queues] : {std::pair{writer, &writes}, {reader, &reads}}) {
      auto made = CudaQueue::create(ordinal);
      if (!made) return std::move(made).error();
      queues->push_back(std::move(made).value());
    }
  }
  constexpr std::size_t kFrom = offsetof(Area, reader_is_there);
  constexpr std::size_t kRest = sizeof(Area) - kFrom;
  auto page = PinnedPage::create(kRest);
  if (!page) return std::move(page).error();
  const auto stream_of = [](const CudaQueue& queue) {
    return static_cast<cudaStream_t>(queue.stream());
  };

  // Loaded before any runs: the ones wait for the others.
  for (std::size_t i = 0; i < writers.size(); ++i) {
    ARC_RETURN_IF_ERROR(writes[i].make_current());
    ARC_RETURN_IF_ERROR(checked(device::load(write_lines), "loading"));
    ARC_RETURN_IF_ERROR(reads[i].make_current());
    ARC_RETURN_IF_ERROR(checked(device::load(read_lines), "loading"));
    ARC_RETURN_IF_ERROR(
        checked(cudaMemsetAsync(area_of(i), 0, sizeof(Area), stream_of(reads[i])), "clearing"));
    ARC_RETURN_IF_ERROR(reads[i].drain(timeout));
  }
  Status launched;
  const auto launch_all = [&](const std::vector<CudaQueue>& queues, auto kernel) {
    for (std::size_t i = 0; i < queues.size() && launched; ++i) {
      static_cast<void>(launched = queues[i].make_current());
      if (!launched) return;
      kernel<<<kBlocks, kThreads, 0, stream_of(queues[i])>>>(area_of(i), timeout_ns);
      static_cast<void>(launched = checked(cudaGetLastError(), "launching"));
    }
  };
  launch_all(reads, read_lines);
  launch_all(writes, write_lines);
  // Waited for whatever happened, so that nothing uses the caller's memory any more.
  Status ended;
  for (const std::vector<CudaQueue>* queues : {&writes, &reads}) {
    for (const CudaQueue& queue : *queues) {
      Status drained = queue.drain(2 * timeout);
      if (ended) static_cast<void>(ended = std::move(drained));
    }
  }
  ARC_RETURN_IF_ERROR(launched);
  ARC_RETURN_IF_ERROR(ended);

  Ll128Verdict verdict;
  for (std::size_t i = 0; i < writers.size(); ++i) {
    ARC_RETURN_IF_ERROR(reads[i].make_current());
    const std::byte* const from = reinterpret_cast<const std::byte*>(area_of(i)) + kFrom;
    ARC_RETURN_IF_ERROR(checked(
        cudaMemcpyAsync(page->host(), from, kRest, cudaMemcpyDeviceToHost, stream_of(reads[i])),
        "reading the result"));
    ARC_RETURN_IF_ERROR(reads[i].drain(timeout));
    const auto counted = [&](std::size_t offset, auto& value) {
      std::memcpy(&value, static_cast<std::byte*>(page->host()) + (offset - kFrom), sizeof(value));
    };
    Counts counts;
    counted(offsetof(Area, unfinished), counts.unfinished);
    counted(offsetof(Area, changes), counts.changes);
    counted(offsetof(Area, torn), counts.torn);
    if (counts.unfinished != 0) {
      return error(ErrorCode::DeadlineExceeded, Reason::Timeout, "trying 128-byte stores from GPU ",
                   writers[i], " to GPU ", reader, ": ", counts.unfinished, " of ", kWarps,
                   " warps did not see the last of them in time");
    }
    verdict.changes = std::min<std::uint64_t>(verdict.changes, counts.changes);
    verdict.torn += counts.torn;
  }
  return verdict;
}

}  // namespace arcomm
