#include "tests/gpu/kernels/gpu_node.h"

#include <algorithm>
#include <cstdlib>
#include <numeric>
#include <thread>
#include <utility>

#include "kernels/cuda_scratch.h"

namespace arcomm::gpu {

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
    for (const auto& [memory, size] :
         {std::pair{&one.scratch, cuda_scratch_bytes(static_cast<std::uint32_t>(ranks))},
          {&one.send, bytes},
          {&one.recv, bytes}}) {
      auto made = one.device->allocate(size);
      if (!made) return std::move(made).error();
      *memory = std::move(*made);
    }
    const CurrentCudaDevice current(ordinal);
    ARC_RETURN_IF_ERROR(load_all_reduce_kernels());
    auto copies = CopyQueue::create(ordinal);
    if (!copies) return std::move(copies).error();
    one.copies = std::move(*copies);
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
  return test_ll128_lines((*this)[writer].device->ordinal(), (*this)[reader].device->ordinal(),
                          memory->data(), std::chrono::seconds(30));  // with racecheck
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
    std::vector<CopyEnginePart> parts;
    for (int rank = 0; rank < ranks(); ++rank) {
      CudaAllReduce own = call(rank, count, dtype, op, send_offset, recv_offset, in_place);
      own.ordinal = (*this)[rank].device->ordinal();
      parts.push_back({own, (*this)[rank].stream->handle(), &(*this)[rank].copies});
    }
    return launch_by_copy_engines(parts, most_chunk_bytes);
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
