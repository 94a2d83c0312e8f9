#include "tests/gpu/kernels/node/gpu_node.h"

#include <algorithm>
#include <cstdlib>
#include <numeric>
#include <thread>
#include <utility>

#include "daemon/exec/gpu/copy_operation.h"
#include "kernels/launch/cuda_event_ring.h"
#include "kernels/launch/cuda_queue.h"
#include "kernels/launch/cuda_scratch.h"

namespace arcomm::gpu {

namespace {

// Its one queue's launches are in a stream of the test's, whichever their parity.
class StreamQueues final : public GpuQueues {
 public:
  StreamQueues(GpuStream& stream, CudaQueue copies, CudaEventRing events)
      : stream_(stream), copies_(std::move(copies)), events_(std::move(events)) {}

  Status launch(std::uint32_t, std::uint32_t, CudaAlgorithm algorithm,
                const CudaAllReduce& call) override {
    ARC_RETURN_IF_ERROR(copies_.make_current());
    return launch_all_reduce(algorithm, call, {}, stream_.handle());
  }
  Result<QueueEvent> record(QueueStream stream) override {
    void* const event = events_.next();
    if (stream.kind == QueueStream::Kind::Copies) {
      ARC_RETURN_IF_ERROR(copies_.record(event));
    } else {
      ARC_RETURN_IF_ERROR(copies_.make_current());
      const cudaError_t recorded =
          cudaEventRecord(static_cast<cudaEvent_t>(event), stream_.handle());
      if (recorded != cudaSuccess) return cuda_error(recorded, "recording an event");
    }
    return QueueEvent{reinterpret_cast<std::uintptr_t>(event)};
  }
  Status wait(QueueStream stream, QueueEvent event) override {
    auto* const awaited = reinterpret_cast<cudaEvent_t>(event.id);
    if (stream.kind == QueueStream::Kind::Copies) return copies_.wait_event(awaited);
    const cudaError_t waits = cudaStreamWaitEvent(stream_.handle(), awaited, 0);
    if (waits != cudaSuccess) return cuda_error(waits, "waiting for an event");
    return {};
  }
  Status copy(std::uint32_t, void* to, const void* from, std::uint64_t bytes) override {
    return copies_.copy(to, from, bytes);
  }
  Status combine(std::uint32_t, std::uint32_t, const CombineCall& call) override {
    ARC_RETURN_IF_ERROR(copies_.make_current());
    return launch_combine(call, stream_.handle());
  }

 private:
  GpuStream& stream_;  // outlives this
  CudaQueue copies_;
  CudaEventRing events_;
};

}  // namespace

Result<GpuNode> GpuNode::open(int ranks, std::uint64_t bytes, Gpus gpus) {
  const int least = gpus == Gpus::Own ? ranks : 1, taken = std::min(ranks, count_cuda_devices());
  if (taken < least) {
    return error(ErrorCode::Unavailable, Reason::Unsupported, ranks, " ranks need ", least,
                 " GPUs; there are ", taken);
  }
  std::vector<int> peers(static_cast<std::size_t>(taken));
  std::iota(peers.begin(), peers.end(), 0);
  GpuNode node;
  node.on_a_gpu_ = static_cast<std::uint32_t>((ranks + taken - 1) / taken);
  for (int rank = 0; rank < ranks; ++rank) {
    const int ordinal = rank % taken;
    GpuRank one;
    auto device = CudaDevice::create({.ordinal = ordinal, .peers = peers});
    if (!device) return std::move(device).error();
    one.device = std::move(*device);
    for (std::unique_ptr<GpuStream>* stream : {&one.stream, &one.side}) {
      auto made = GpuStream::create(ordinal);
      if (!made) return std::move(made).error();
      *stream = std::move(*made);
    }
    // As the daemon's: the slots behind the rest are another piece of memory.
    const auto together = static_cast<std::uint32_t>(ranks);
    auto scratch =
        one.device->allocate_growing(cuda_state_bytes(together), cuda_scratch_bytes(together));
    if (!scratch) return std::move(scratch).error();
    one.scratch = std::move(*scratch);
    ARC_RETURN_IF_ERROR(one.scratch.grow(cuda_scratch_bytes(together)));
    for (Memory* const memory : {&one.send, &one.recv}) {
      const std::uint64_t size = bytes;
      auto made = one.device->allocate(size);
      if (!made) return std::move(made).error();
      *memory = std::move(*made);
    }
    const CurrentCudaDevice current(ordinal);
    ARC_RETURN_IF_ERROR(load_all_reduce_kernels());
    auto copies = CudaQueue::create(ordinal);
    if (!copies) return std::move(copies).error();
    auto events = CudaEventRing::create(ordinal, kQueueEvents);
    if (!events) return std::move(events).error();
    one.queues =
        std::make_unique<StreamQueues>(*one.stream, std::move(*copies), std::move(*events));
    node.ranks_.push_back(std::move(one));
  }
  for (int writer = 0; writer < taken; ++writer) {
    for (int reader = 0; reader < taken; ++reader) {
      if (writer == reader) continue;
      const auto verdict = node.try_lines(writer, reader);
      if (!verdict) return verdict.error();
      node.abilities_.atomic_128b_stores &= verdict->lines_are_whole();
    }
  }
  return node;
}

std::vector<CudaAlgorithm> GpuNode::algorithms() const {
  std::vector<CudaAlgorithm> algorithms;
  for (const CudaAlgorithmEntry& entry : cuda_algorithms()) {
    if (entry.max_ranks > 1 && !entry.launches_all_ranks && can_run(entry.algorithm, abilities_))
      algorithms.push_back(entry.algorithm);
  }
  return algorithms;
}

CudaShape GpuNode::fitting(CudaShape shape) const {
  if (on_a_gpu_ == 1) return shape;
  const std::uint32_t most = kDefaultCudaBlocks / on_a_gpu_;
  return {.blocks = shape.blocks == 0 ? most : std::min(shape.blocks, most)};
}

Result<Ll128Verdict> GpuNode::try_lines(int writer, int reader) {
  auto memory = (*this)[reader].device->allocate(kLl128TestBytes);
  if (!memory) return std::move(memory).error();
  const int writers[] = {(*this)[writer].device->ordinal()};
  return test_ll128_lines(writers, (*this)[reader].device->ordinal(), memory->data(),
                          std::chrono::seconds(30));  // with racecheck
}

CudaAllReduce GpuNode::call(int rank, std::uint64_t count, DType dtype, ReduceOp op,
                            std::uint64_t send_offset, std::uint64_t recv_offset, bool in_place) {
  CudaAllReduce call{.count = count,
                     .timeout_ns = timeout_ns,
                     .rank = static_cast<std::uint32_t>(rank),
                     .ranks = static_cast<std::uint32_t>(ranks()),
                     .dtype = dtype,
                     .op = op};
  for (int r = 0; r < ranks(); ++r) {
    GpuRank& one = (*this)[r];
    const Memory& from = swapped ? one.recv : one.send;
    const Memory& to = swapped ? one.send : one.recv;
    call.send[r] = from.data() + send_offset;
    call.recv[r] = in_place ? from.data() + send_offset : to.data() + recv_offset;
    call.scratch[r] = one.scratch.data();
  }
  return call;
}

Status GpuNode::launch(CudaAlgorithm algorithm, std::uint64_t count, DType dtype, ReduceOp op,
                       CudaShape shape, std::uint64_t send_offset, std::uint64_t recv_offset,
                       bool in_place) {
  if (entry_of(algorithm).launches_all_ranks) {
    std::vector<CudaAllReduce> calls;
    for (int rank = 0; rank < ranks(); ++rank)
      calls.push_back(call(rank, count, dtype, op, send_offset, recv_offset, in_place));
    return launch_copies(calls);
  }
  const auto launch_one = [&](int rank) {
    use(rank);
    return launch_all_reduce(algorithm,
                             call(rank, count, dtype, op, send_offset, recv_offset, in_place),
                             fitting(shape), (*this)[rank].stream->handle());
  };
  std::vector<Status> launched(ranks_.size());
  if (std::getenv("ARCOMM_LAUNCH_APART") != nullptr) {
    std::vector<std::thread> threads;
    threads.reserve(ranks_.size());
    for (int rank = 0; rank < ranks(); ++rank)
      threads.emplace_back(
          [&, rank] { launched[static_cast<std::size_t>(rank)] = launch_one(rank); });
    for (std::thread& thread : threads) thread.join();
  } else {
    for (int rank = 0; rank < ranks(); ++rank)
      launched[static_cast<std::size_t>(rank)] = launch_one(rank);
  }
  for (Status& one : launched) ARC_RETURN_IF_ERROR(std::move(one));
  return {};
}

Status GpuNode::launch_copies(std::span<const CudaAllReduce> calls) {
  std::vector<CopyPart> parts;
  for (const CudaAllReduce& one : calls)
    parts.push_back({.queues = ranks_[one.rank].queues.get(), .call = &one});
  return launch_by_copy_engines(parts, 0, most_chunk_bytes);
}

Status GpuNode::synchronize(std::chrono::nanoseconds timeout) {
  for (GpuRank& rank : ranks_) ARC_RETURN_IF_ERROR(rank.stream->synchronize(timeout));
  return {};
}

CudaOutcome GpuNode::outcome(int rank) {
  CudaOutcome outcome{};
  cudaMemcpy(&outcome, (*this)[rank].scratch.data(), sizeof(outcome), cudaMemcpyDeviceToHost);
  return outcome;
}

void GpuNode::clear_scratch() {
  for (GpuRank& rank : ranks_) {
    const CurrentCudaDevice current(rank.device->ordinal());
    cudaMemset(rank.scratch.data(), 0, rank.scratch.bytes());
    cudaDeviceSynchronize();
  }
}

}  // namespace arcomm::gpu
