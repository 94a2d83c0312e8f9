#include "tests/gpu/bench/in_stream_contender.h"

#include <cstring>
#include <utility>

#include "daemon/plan/launch_table_builder.h"
#include "kernels/device/cuda_error.cuh"

namespace arcomm::gpu {

Result<InStreamContender> InStreamContender::open(GpuNode& node, std::uint32_t blocks) {
  InStreamContender made(node);
  const auto ranks = static_cast<std::uint32_t>(node.ranks());
  made.launches_ =
      make_launch_table({.ranks = ranks, .atomic_128b_stores = true, .in_stream_blocks = blocks});
  const std::uint64_t bytes = in_stream_exchange_bytes(ranks);
  for (std::uint32_t number = 0; number < ranks; ++number) {
    node.use(static_cast<int>(number));
    Result<std::unique_ptr<InStreamKernels>> kernels = InStreamKernels::load();
    if (!kernels) return std::move(kernels).error();
    Rank rank{.kernels = std::move(*kernels)};
    for (unsigned codec = 1; codec < kCodecs; ++codec)
      ARC_RETURN_IF_ERROR(rank.kernels->load(static_cast<Codec>(codec)));
    for (std::uint32_t peer = 0; peer < ranks; ++peer) {
      if (peer != number) cudaDeviceEnablePeerAccess(static_cast<int>(peer), 0);
    }
    cudaGetLastError();  // access that was there already
    cudaError_t done = cudaMalloc(&rank.exchange, bytes);
    if (done == cudaSuccess) done = cudaMemset(rank.exchange, 0, bytes);
    if (done == cudaSuccess) done = cudaMalloc(&rank.mailbox, kMailboxBytes);
    if (done == cudaSuccess) done = cudaMemset(rank.mailbox, 0, kMailboxBytes);
    if (done == cudaSuccess) done = cudaMallocHost(&rank.doorbells, sizeof(HostDoorbells));
    if (done == cudaSuccess) done = cudaDeviceSynchronize();
    if (done != cudaSuccess) return device::cuda_error(done, "memory for in-stream operations");
    std::memset(rank.doorbells, 0, sizeof(HostDoorbells));
    made.ranks_.push_back(std::move(rank));
  }
  return made;
}

InStreamShape InStreamContender::shape_of(std::uint64_t bytes, Codec codec) const {
  return launches_.find({.bytes = bytes, .dtype = DType::Float16, .codec = codec}).in_stream;
}

bool InStreamContender::enqueue(std::uint64_t bytes, Codec codec) {
  const InStreamShape shape = shape_of(bytes, codec);
  for (std::uint32_t number = 0; number < ranks_.size(); ++number) {
    const Rank& rank = ranks_[number];
    GpuRank& own = (*node_)[static_cast<int>(number)];
    InStreamCall call{.send = own.send.data(),
                      .recv = own.recv.data(),
                      .mailbox = rank.mailbox,
                      .doorbells = rank.doorbells,
                      .timeout_ns = 5'000'000'000,
                      .count = static_cast<std::uint32_t>(bytes / 2),
                      .rank = number,
                      .ranks = static_cast<std::uint32_t>(ranks_.size())};
    for (std::size_t other = 0; other < ranks_.size(); ++other)
      call.exchange[other] = ranks_[other].exchange;
    node_->use(static_cast<int>(number));
    if (!rank.kernels->launch(shape, DType::Float16, ReduceOp::Sum, call, own.stream->handle(),
                              codec))
      return false;
  }
  return true;
}

bool InStreamContender::has_failed() const {
  for (const Rank& rank : ranks_) {
    std::uint64_t failed = 0;
    if (cudaMemcpy(&failed, &rank.mailbox->failed, sizeof(failed), cudaMemcpyDeviceToHost) !=
            cudaSuccess ||
        failed != 0)
      return true;
  }
  return false;
}

}  // namespace arcomm::gpu
