// copy_engine.h: the streams' order, and the kernel that combines a chunk.
//
// Chunk c of shard p goes from each rank into slot c % kCopySlots of p's staging region, once what
// lay there has been combined; from p's output into everybody's, once it has been. All begin when
// all ranks' streams have come here, as then their buffers and the staging are free. A rank's
// stream goes on when the copies from its output and into it have ended; those out of its input
// have then too, as every shard's result needed them.
#include <cuda_runtime_api.h>

#include <algorithm>

#include "kernels/all_reduce/algorithms.cuh"
#include "kernels/copy_engine.h"
#include "kernels/device/cuda_error.cuh"
#include "kernels/device/dispatch.cuh"
#include "kernels/device/element.cuh"
#include "kernels/device/launching.cuh"
#include "kernels/partition.h"

namespace arcomm {
namespace device {
namespace {

constexpr std::uint32_t kThreads = 512, kBlocks = 64;
constexpr int kUnroll = 4;
constexpr std::uint32_t kVectorBytes = 16;

// All of it in the memory of one GPU.
struct Chunk {
  const void* own = nullptr;
  void* out = nullptr;
  const unsigned char* others = nullptr;  // by rank, the own one left out
  std::uint64_t stride = 0;               // from one to the next
  std::uint64_t count = 0;
  std::uint32_t rank = 0, ranks = 0;
  bool vectors = false;  // own and out lie on 16 bytes

  __device__ __forceinline__ const unsigned char* part(std::uint32_t of) const {
    return of == rank ? static_cast<const unsigned char*>(own)
                      : others + (of < rank ? of : of - 1) * stride;
  }
};

template <typename Format, ReduceOp kOp, std::uint32_t kRanks>
__global__ void __launch_bounds__(kThreads) combine(const __grid_constant__ Chunk chunk) {
  using Stored = typename Format::Stored;
  constexpr std::uint32_t kCount = kVectorBytes / sizeof(Stored);
  union Vector {
    uint4 whole;
    Stored elements[kCount];
  };
  const std::uint32_t ranks = kRanks != 0 ? kRanks : chunk.ranks;
  const std::uint64_t thread = std::uint64_t{blockIdx.x} * kThreads + threadIdx.x;
  const std::uint64_t stride = std::uint64_t{gridDim.x} * kThreads;
  const std::uint64_t vectors = chunk.vectors ? chunk.count / kCount : 0;
  for (std::uint64_t i = thread; i < vectors; i += kUnroll * stride) {
    Pack<Format, kVectorBytes> results[kUnroll];
#pragma unroll
    for (std::uint32_t rank = 0; rank < ranks; ++rank) {
      const auto* from = reinterpret_cast<const uint4*>(chunk.part(rank));
      Vector parts[kUnroll];
#pragma unroll
      for (int u = 0; u < kUnroll; ++u) {
        if (i + u * stride < vectors) parts[u].whole = from[i + u * stride];
      }
#pragma unroll
      for (int u = 0; u < kUnroll; ++u) {
        if (rank == 0) {
          results[u].widen(parts[u].elements);
        } else {
          results[u].template combine_next<kOp>(parts[u].elements);
        }
      }
    }
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) {
      Vector out;
      results[u].template store_to<kOp>(out.elements, ranks);
      if (i + u * stride < vectors) static_cast<uint4*>(chunk.out)[i + u * stride] = out.whole;
    }
  }
  for (std::uint64_t i = vectors * kCount + thread; i < chunk.count; i += stride) {
    Pack<Format, static_cast<int>(sizeof(Stored))> result;
    for (std::uint32_t rank = 0; rank < ranks; ++rank) {
      const Stored part[1] = {reinterpret_cast<const Stored*>(chunk.part(rank))[i]};
      if (rank == 0) {
        result.widen(part);
      } else {
        result.template combine_next<kOp>(part);
      }
    }
    Stored out[1];
    result.template store_to<kOp>(out, ranks);
    static_cast<Stored*>(chunk.out)[i] = out[0];
  }
}

template <typename Format, ReduceOp kOp>
auto kernel_for(std::uint32_t ranks) {
  if constexpr (kOp == ReduceOp::Sum &&
                (sizeof(typename Format::Stored) == 2 || std::is_same_v<Format, Plain<float>>)) {
    if (ranks == 2) return &combine<Format, kOp, 2>;
    if (ranks == 4) return &combine<Format, kOp, 4>;
  }
  return &combine<Format, kOp, 0>;
}

cudaError_t launch_combine(const CudaAllReduce& call, const Chunk& chunk, cudaStream_t stream) {
  const std::uint64_t vectors = chunk.count * size_of(call.dtype) / kVectorBytes;
  const auto blocks = static_cast<std::uint32_t>(
      std::clamp<std::uint64_t>(vectors / (kThreads * kUnroll), 1, kBlocks));
  return with_kernel(call.dtype, call.op, [&]<typename Format, ReduceOp kOp>() {
    cudaLaunchConfig_t config{};  // its own result: cudaGetLastError() may be anybody's
    config.gridDim = dim3(blocks);
    config.blockDim = dim3(kThreads);
    config.stream = stream;
    return cudaLaunchKernelEx(&config, kernel_for<Format, kOp>(call.ranks), chunk);
  });
}

// Puts one operation into the streams. The first error stays, and no chunk of another rank follows
// it, only what brings the streams together again.
class CopyEngineOperation {
 public:
  CopyEngineOperation(std::span<const CopyEnginePart> parts, std::uint64_t most_chunk_bytes)
      : parts_(parts),
        ranks_(static_cast<std::uint32_t>(parts.size())),
        element_(size_of(parts[0].call.dtype)) {
    const CudaAllReduce& call = parts[0].call;
    const std::uint64_t longest = shard_range(call.count, call.dtype, ranks_, 0).size();
    slot_bytes_ = copy_slot_bytes(ranks_);
    std::uint64_t most = slot_bytes_;
    if (most_chunk_bytes != 0) most = std::min(most, most_chunk_bytes);
    // A shard in two chunks where it fits: the second travels while the first is combined.
    chunk_elements_ = tile_elements(
        call.dtype, std::clamp(longest * element_ / 2, std::min(kMinCopyChunk, most), most));
    chunks_ = tile_count(longest, chunk_elements_);
  }

  cudaError_t run() {
    begin();
    for (std::uint64_t chunk = 0; chunk < chunks_ && error_ == cudaSuccess; ++chunk) {
      for (std::uint32_t rank = 0; rank < ranks_; ++rank) scatter(rank, chunk);
      for (std::uint32_t rank = 0; rank < ranks_; ++rank) reduce_and_gather(rank, chunk);
    }
    end();
    return error_;
  }

 private:
  static cudaStream_t stream(void* of) { return static_cast<cudaStream_t>(of); }
  void go_to(std::uint32_t rank) { note(cudaSetDevice(parts_[rank].call.ordinal)); }
  void note(cudaError_t result) {
    if (error_ == cudaSuccess) error_ = result;
  }
  // On the rank's GPU, which is current.
  cudaEvent_t record(std::uint32_t rank, void* in) {
    auto event = static_cast<cudaEvent_t>(parts_[rank].lanes->next_event());
    note(cudaEventRecord(event, stream(in)));
    return event;
  }
  void wait(void* in, cudaEvent_t event) { note(cudaStreamWaitEvent(stream(in), event, 0)); }

  ElementRange chunk_of(std::uint32_t owner, std::uint64_t chunk) const {
    const CudaAllReduce& call = parts_[0].call;
    const ElementRange shard = shard_range(call.count, call.dtype, ranks_, owner);
    const std::uint64_t first = shard.first + chunk * chunk_elements_;
    if (first >= shard.last) return {shard.last, shard.last};
    return {first, std::min(first + chunk_elements_, shard.last)};
  }
  // In the memory of `at`, by the address at which rank `seen_by` finds it.
  unsigned char* slot(std::uint32_t seen_by, std::uint32_t at, std::uint32_t from,
                      std::uint64_t chunk) const {
    const std::uint64_t place = chunk % kCopySlots * (ranks_ - 1) + (from < at ? from : from - 1);
    return static_cast<unsigned char*>(parts_[seen_by].call.scratch[at]) + copy_offset(ranks_) +
           place * slot_bytes_;
  }

  void begin() {
    cudaEvent_t ready[kMaxCudaRanks];
    for (std::uint32_t rank = 0; rank < ranks_; ++rank) {
      go_to(rank);
      ready[rank] = record(rank, parts_[rank].stream);
    }
    for (std::uint32_t rank = 0; rank < ranks_; ++rank) {
      for (std::uint32_t peer = 0; peer < ranks_; ++peer) {
        for (void* in : parts_[rank].lanes->scatters()) wait(in, ready[peer]);
        for (void* in : parts_[rank].lanes->gathers()) wait(in, ready[peer]);
      }
    }
  }

  void scatter(std::uint32_t rank, std::uint64_t chunk) {
    if (error_ != cudaSuccess) return;
    go_to(rank);
    for (std::uint32_t hop = 1; hop < ranks_; ++hop) {
      const std::uint32_t owner = (rank + hop) % ranks_;
      const ElementRange range = chunk_of(owner, chunk);
      if (range.empty()) continue;
      void* const in = parts_[rank].lanes->scatter(hop);
      if (chunk >= kCopySlots) wait(in, combined_[owner][chunk % kCopySlots]);
      const auto* from = static_cast<const unsigned char*>(parts_[rank].call.send[rank]);
      note(cudaMemcpyAsync(slot(rank, owner, rank, chunk), from + range.first * element_,
                           range.size() * element_, cudaMemcpyDefault, stream(in)));
      sent_[rank][owner] = record(rank, in);
    }
  }

  void reduce_and_gather(std::uint32_t rank, std::uint64_t chunk) {
    const CopyEnginePart& part = parts_[rank];
    const CudaAllReduce& call = part.call;
    const ElementRange range = chunk_of(rank, chunk);
    if (range.empty() || error_ != cudaSuccess) return;
    go_to(rank);
    for (std::uint32_t peer = 0; peer < ranks_; ++peer) {
      if (peer != rank) wait(part.stream, sent_[peer][rank]);
    }
    const std::uint64_t at = range.first * element_;
    auto* const out = static_cast<unsigned char*>(call.recv[rank]) + at;
    const auto* const own = static_cast<const unsigned char*>(call.send[rank]) + at;
    note(launch_combine(call,
                        {.own = own,
                         .out = out,
                         .others = slot(rank, rank, rank == 0 ? 1 : 0, chunk),
                         .stride = slot_bytes_,
                         .count = range.size(),
                         .rank = rank,
                         .ranks = ranks_,
                         .vectors = lies_on(own, kVectorBytes) && lies_on(out, kVectorBytes)},
                        stream(part.stream)));
    const cudaEvent_t combined = record(rank, part.stream);
    combined_[rank][chunk % kCopySlots] = combined;
    for (std::uint32_t hop = 1; hop < ranks_; ++hop) {
      void* const in = part.lanes->gather(hop);
      wait(in, combined);
      auto* const to = static_cast<unsigned char*>(call.recv[(rank + hop) % ranks_]) + at;
      note(cudaMemcpyAsync(to, out, range.size() * element_, cudaMemcpyDefault, stream(in)));
    }
  }

  // Also after an error: whoever finds a rank's stream empty may take the memory back.
  void end() {
    for (std::uint32_t rank = 0; rank < ranks_; ++rank) {
      go_to(rank);
      for (void* in : parts_[rank].lanes->scatters()) wait(parts_[rank].stream, record(rank, in));
      for (void* in : parts_[rank].lanes->gathers()) {
        const cudaEvent_t ended = record(rank, in);
        for (const CopyEnginePart& part : parts_) wait(part.stream, ended);
      }
    }
  }

  std::span<const CopyEnginePart> parts_;
  const std::uint32_t ranks_;
  const std::uint64_t element_;
  std::uint64_t slot_bytes_ = 0, chunk_elements_ = 0, chunks_ = 0;
  cudaEvent_t sent_[kMaxCudaRanks][kMaxCudaRanks] = {};  // the latest chunk: by sender and owner
  cudaEvent_t combined_[kMaxCudaRanks][kCopySlots] = {};
  cudaError_t error_ = cudaSuccess;
};

}  // namespace

cudaError_t load_copy_engine(DType dtype, ReduceOp op) {
  return with_kernel(dtype, op, [&]<typename Format, ReduceOp kOp>() {
    return load_for_all_ranks(kernel_for<Format, kOp>);
  });
}

}  // namespace device

Result<CopyLanes> CopyLanes::create(int ordinal) {
  CopyLanes lanes;
  lanes.ordinal_ = ordinal;
  cudaError_t made = cudaSetDevice(ordinal);
  for (void*& stream : lanes.streams_) {
    cudaStream_t one = nullptr;
    if (made == cudaSuccess) made = cudaStreamCreateWithFlags(&one, cudaStreamNonBlocking);
    stream = one;
  }
  lanes.events_.resize(kEvents);
  for (void*& event : lanes.events_) {
    cudaEvent_t one = nullptr;
    if (made == cudaSuccess) made = cudaEventCreateWithFlags(&one, cudaEventDisableTiming);
    event = one;
  }
  if (made != cudaSuccess) return device::cuda_error(made, "preparing a GPU's copy engines");
  return Result<CopyLanes>(std::move(lanes));
}

CopyLanes::~CopyLanes() {
  if (ordinal_ < 0 || cudaSetDevice(ordinal_) != cudaSuccess) return;
  for (void* event : events_) {
    if (event != nullptr) cudaEventDestroy(static_cast<cudaEvent_t>(event));
  }
  for (void* stream : streams_) {
    if (stream != nullptr) cudaStreamDestroy(static_cast<cudaStream_t>(stream));
  }
}

Result<bool> CopyLanes::idle() const {
  for (void* stream : streams_) {
    const cudaError_t state = cudaStreamQuery(static_cast<cudaStream_t>(stream));
    if (state == cudaErrorNotReady) return false;
    if (state != cudaSuccess) return device::cuda_error(state, "a stream of the copy engines");
  }
  return true;
}

void* CopyLanes::next_event() {
  void* const event = events_[next_];
  next_ = (next_ + 1) % events_.size();
  return event;
}

Status launch_by_copy_engines(std::span<const CopyEnginePart> parts,
                              std::uint64_t most_chunk_bytes) {
  for (const CopyEnginePart& part : parts)
    ARC_RETURN_IF_ERROR(can_launch(CudaAlgorithm::CopyEngine, part.call));
  if (parts.empty() || parts.size() != parts[0].call.ranks) {
    return error(ErrorCode::InvalidArgument, Reason::BadValue, parts.size(),
                 " parts: copy_engine takes those of all ranks at once");
  }
  if (parts[0].call.count != 0) {
    const cudaError_t begun = device::CopyEngineOperation(parts, most_chunk_bytes).run();
    if (begun != cudaSuccess)
      return device::cuda_error(begun, "launching an AllReduce by copy engines");
  }
  for (const CopyEnginePart& part : parts) {  // says that it has ended
    CudaAllReduce nothing = part.call;
    nothing.count = 0;
    ARC_RETURN_IF_ERROR(
        launch_all_reduce(CudaAlgorithm::CopyEngine, nothing, CudaShape{}, part.stream));
  }
  return {};
}

}  // namespace arcomm
