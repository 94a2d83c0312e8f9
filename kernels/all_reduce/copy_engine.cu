// copy_engine.h: the order of the copies, and the kernel that combines a chunk.
//
// Chunk c of shard p (copy_shape.h) goes from each rank r to p, and waits there where r's shard of
// p's output is to be: nobody writes there before p has combined it. Where a rank's output is its
// input, and for the rest, it goes into slot c % kCopySlots of p's scratch, once what lay in that
// has been combined. From p's output the result goes into everybody's.
//
// A GPU's copies follow one another in one stream, as two at a time share a link and are no faster:
// those out of chunk c's parts, one peer at a time and all ranks to different ones, then those of
// chunk c - 1's result, which has been combined meanwhile.
//
// All begin when all ranks' streams have come here, as then their buffers and the scratch are free.
// A rank's stream goes on when all copies have ended, into its output and out of its input.
#include <cuda_runtime_api.h>

#include <algorithm>

#include "kernels/all_reduce/algorithms.cuh"
#include "kernels/all_reduce/copy_shape.h"
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
  const unsigned char* parts[kMaxGpuRanks] = {};
  unsigned char* out = nullptr;
  std::uint64_t count = 0;
  std::uint32_t ranks = 0;
  bool vectors = false;  // all of them lie on 16 bytes
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
      const auto* from = reinterpret_cast<const uint4*>(chunk.parts[rank]);
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
      if (i + u * stride < vectors) reinterpret_cast<uint4*>(chunk.out)[i + u * stride] = out.whole;
    }
  }
  for (std::uint64_t i = vectors * kCount + thread; i < chunk.count; i += stride) {
    Pack<Format, static_cast<int>(sizeof(Stored))> result;
    for (std::uint32_t rank = 0; rank < ranks; ++rank) {
      const Stored part[1] = {reinterpret_cast<const Stored*>(chunk.parts[rank])[i]};
      if (rank == 0) {
        result.widen(part);
      } else {
        result.template combine_next<kOp>(part);
      }
    }
    Stored out[1];
    result.template store_to<kOp>(out, ranks);
    reinterpret_cast<Stored*>(chunk.out)[i] = out[0];
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
        element_(size_of(parts[0].call.dtype)),
        in_slots_(std::any_of(parts.begin(), parts.end(), shares_memory)),
        shape_(copy_shape(parts[0].call.count, parts[0].call.dtype, ranks_, in_slots_,
                          most_chunk_bytes)) {}

  cudaError_t run() {
    begin();
    const std::uint64_t all = shape_.all_chunks();
    for (std::uint64_t chunk = 0; chunk <= all && error_ == cudaSuccess; ++chunk) {
      for (std::uint32_t rank = 0; rank < ranks_ && chunk < all; ++rank) scatter(rank, chunk);
      for (std::uint32_t rank = 0; rank < ranks_ && chunk < all; ++rank) reduce(rank, chunk);
      for (std::uint32_t rank = 0; rank < ranks_ && chunk > 0; ++rank) gather(rank, chunk - 1);
    }
    end();
    return error_;
  }

 private:
  static cudaStream_t stream(void* of) { return static_cast<cudaStream_t>(of); }
  // Whether the rank's output overlaps its input.
  static bool shares_memory(const CopyEnginePart& part) {
    const CudaAllReduce& call = part.call;
    const auto* const send = static_cast<const unsigned char*>(call.send[call.rank]);
    const auto* const recv = static_cast<const unsigned char*>(call.recv[call.rank]);
    const std::uint64_t bytes = call.count * size_of(call.dtype);
    return send < recv + bytes && recv < send + bytes;
  }

  void go_to(std::uint32_t rank) { note(cudaSetDevice(parts_[rank].call.ordinal)); }
  void note(cudaError_t result) {
    if (error_ == cudaSuccess) error_ = result;
  }
  // On the rank's GPU, which is current.
  cudaEvent_t record(std::uint32_t rank, void* in) {
    auto event = static_cast<cudaEvent_t>(parts_[rank].copies->next_event());
    note(cudaEventRecord(event, stream(in)));
    return event;
  }
  void wait(void* in, cudaEvent_t event) { note(cudaStreamWaitEvent(stream(in), event, 0)); }
  void copy(void* to, const void* from, ElementRange range, void* in) {
    note(cudaMemcpyAsync(to, from, range.size() * element_, cudaMemcpyDefault, stream(in)));
  }

  bool waits_in_output(std::uint64_t chunk) const { return !in_slots_ && chunk < shape_.chunks; }
  // Where `from`'s part of a chunk waits in the memory of `at`, by the address at which rank
  // `seen_by` finds it.
  unsigned char* place(std::uint32_t seen_by, std::uint32_t at, std::uint32_t from,
                       std::uint64_t chunk) const {
    const CudaAllReduce& call = parts_[seen_by].call;
    if (waits_in_output(chunk)) {
      return static_cast<unsigned char*>(call.recv[at]) +
             shape_.chunk_of(from, chunk).first * element_;
    }
    return static_cast<unsigned char*>(call.scratch[at]) + kCopyOffset +
           copy_slot_offset(ranks_, at, from, chunk);
  }

  void begin() {
    cudaEvent_t ready[kMaxGpuRanks];
    for (std::uint32_t rank = 0; rank < ranks_; ++rank) {
      go_to(rank);
      ready[rank] = record(rank, parts_[rank].stream);
    }
    for (const CopyEnginePart& part : parts_) {
      for (std::uint32_t peer = 0; peer < ranks_; ++peer) wait(part.copies->stream(), ready[peer]);
    }
  }

  void scatter(std::uint32_t rank, std::uint64_t chunk) {
    if (error_ != cudaSuccess) return;
    const CopyEnginePart& part = parts_[rank];
    go_to(rank);
    for (std::uint32_t hop = 1; hop < ranks_; ++hop) {
      const std::uint32_t owner = (rank + hop) % ranks_;
      const ElementRange range = shape_.chunk_of(owner, chunk);
      if (range.empty()) continue;
      if (!waits_in_output(chunk) && chunk >= kCopySlots)
        wait(part.copies->stream(), combined_[owner][chunk % kCopySlots]);
      const auto* const from = static_cast<const unsigned char*>(part.call.send[rank]);
      copy(place(rank, owner, rank, chunk), from + range.first * element_, range,
           part.copies->stream());
      sent_[rank][owner] = record(rank, part.copies->stream());
    }
  }

  void reduce(std::uint32_t rank, std::uint64_t chunk) {
    const CopyEnginePart& part = parts_[rank];
    const CudaAllReduce& call = part.call;
    const ElementRange range = shape_.chunk_of(rank, chunk);
    if (range.empty() || error_ != cudaSuccess) return;
    go_to(rank);
    const std::uint64_t at = range.first * element_;
    Chunk work{.out = static_cast<unsigned char*>(call.recv[rank]) + at,
               .count = range.size(),
               .ranks = ranks_};
    work.vectors = lies_on(work.out, kVectorBytes);
    for (std::uint32_t peer = 0; peer < ranks_; ++peer) {
      if (peer != rank) wait(part.stream, sent_[peer][rank]);
      work.parts[peer] = peer == rank ? static_cast<const unsigned char*>(call.send[rank]) + at
                                      : place(rank, rank, peer, chunk);
      work.vectors = work.vectors && lies_on(work.parts[peer], kVectorBytes);
    }
    note(launch_combine(call, work, stream(part.stream)));
    combined_[rank][chunk % kCopySlots] = record(rank, part.stream);
  }

  void gather(std::uint32_t rank, std::uint64_t chunk) {
    const CopyEnginePart& part = parts_[rank];
    const ElementRange range = shape_.chunk_of(rank, chunk);
    if (range.empty() || error_ != cudaSuccess) return;
    go_to(rank);
    wait(part.copies->stream(), combined_[rank][chunk % kCopySlots]);
    const std::uint64_t at = range.first * element_;
    for (std::uint32_t hop = 1; hop < ranks_; ++hop) {
      const std::uint32_t peer = (rank + hop) % ranks_;
      // The rank's own part for the peer lay there.
      if (waits_in_output(chunk)) wait(part.copies->stream(), combined_[peer][chunk % kCopySlots]);
      copy(static_cast<unsigned char*>(part.call.recv[peer]) + at,
           static_cast<const unsigned char*>(part.call.recv[rank]) + at, range,
           part.copies->stream());
    }
  }

  // Also after an error: whoever finds a rank's stream empty may take the memory back.
  void end() {
    for (std::uint32_t rank = 0; rank < ranks_; ++rank) {
      go_to(rank);
      const cudaEvent_t ended = record(rank, parts_[rank].copies->stream());
      for (const CopyEnginePart& part : parts_) wait(part.stream, ended);
    }
  }

  std::span<const CopyEnginePart> parts_;
  const std::uint32_t ranks_;
  const std::uint64_t element_;
  const bool in_slots_;
  const CopyShape shape_;
  cudaEvent_t sent_[kMaxGpuRanks][kMaxGpuRanks] = {};  // the latest chunk: by sender and owner
  cudaEvent_t combined_[kMaxGpuRanks][kCopySlots] = {};
  cudaError_t error_ = cudaSuccess;
};

}  // namespace

cudaError_t load_copy_engine(DType dtype, ReduceOp op) {
  return with_kernel(dtype, op, [&]<typename Format, ReduceOp kOp>() {
    return load_for_all_ranks(kernel_for<Format, kOp>);
  });
}

}  // namespace device

Result<CopyQueue> CopyQueue::create(int ordinal) {
  CopyQueue copies;
  copies.ordinal_ = ordinal;
  cudaError_t made = cudaSetDevice(ordinal);
  cudaStream_t stream = nullptr;
  if (made == cudaSuccess) made = cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking);
  copies.stream_ = stream;
  copies.events_.resize(kEvents);
  for (void*& event : copies.events_) {
    cudaEvent_t one = nullptr;
    if (made == cudaSuccess) made = cudaEventCreateWithFlags(&one, cudaEventDisableTiming);
    event = one;
  }
  if (made != cudaSuccess) return device::cuda_error(made, "preparing a GPU's copy engines");
  return Result<CopyQueue>(std::move(copies));
}

CopyQueue::~CopyQueue() {
  if (ordinal_ < 0 || cudaSetDevice(ordinal_) != cudaSuccess) return;
  for (void* event : events_) {
    if (event != nullptr) cudaEventDestroy(static_cast<cudaEvent_t>(event));
  }
  if (stream_ != nullptr) cudaStreamDestroy(static_cast<cudaStream_t>(stream_));
}

Result<bool> CopyQueue::idle() const {
  if (stream_ == nullptr) return true;
  const cudaError_t state = cudaStreamQuery(static_cast<cudaStream_t>(stream_));
  if (state == cudaErrorNotReady) return false;
  if (state != cudaSuccess) return device::cuda_error(state, "the stream of the copy engines");
  return true;
}

void* CopyQueue::next_event() {
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
