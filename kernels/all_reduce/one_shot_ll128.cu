// As one_shot_ll16, with lines of 128 bytes of which 124 are data: one hop and no fence, at 3
// percent more traffic than the data instead of twice as much. Only between GPUs that store such
// lines whole.
//
// Halves of the region alternate by epoch, and two are enough whatever ran in between: a peer that
// writes epoch e + 2 has ended e + 1, so all ranks have begun e + 1, so their launches of e have
// ended and read all of the half that it writes to. A line's flag is never data: the region belongs
// to LL128 alone, and all that use it put lines on multiples of 128 bytes.
#include <algorithm>

#include "kernels/all_reduce/algorithms.cuh"
#include "kernels/device/dispatch.cuh"
#include "kernels/device/element.cuh"
#include "kernels/device/launching.cuh"
#include "kernels/device/ll128.cuh"
#include "kernels/device/scratch.cuh"

namespace arcomm::device {
namespace {

constexpr std::uint32_t kAhead = 3;  // packets that a warp reads before it stores the first

// kBatch: ranks whose lines are looked at together.
template <typename Format, ReduceOp kOp, std::uint32_t kBatch>
__global__ void __launch_bounds__(kLl128Threads)
    one_shot_ll128(const __grid_constant__ CudaAllReduce call, bool vectors) {
  const PacketElements<Format> elements({0, call.count}, vectors);
  const void* send = call.send[call.rank];
  const auto packets =
      static_cast<std::uint32_t>(ll128_packets(call.count * sizeof(typename Format::Stored)));
  LaneData ahead[kAhead];
  const auto read_ahead = [&](std::uint32_t packet) {
#pragma unroll
    for (std::uint32_t i = 0; i < kAhead; ++i) {
      const std::uint32_t one = packet + i * packet_stride();
      if (one < packets) ahead[i] = elements.read(send, one);
    }
  };
  read_ahead(first_packet());  // while the epoch is on its way
  const std::uint32_t epoch = begin_epoch(call);
  if (epoch == 0) return end_epoch(call, true);
  LaunchBudget budget = budget_of(call);
  const auto place = [&](std::uint32_t at, std::uint32_t from, std::uint64_t packet) {
    return ll128_packet(call.scratch[at], one_shot_area(epoch, call.ranks, from) + packet);
  };

  for (std::uint32_t packet = first_packet(); packet < packets;
       packet += kAhead * packet_stride()) {
    if (packet != first_packet()) read_ahead(packet);
#pragma unroll
    for (std::uint32_t i = 0; i < kAhead; ++i) {
      const std::uint32_t one = packet + i * packet_stride();
      if (one >= packets) break;
      for (std::uint32_t hop = 1; hop < call.ranks; ++hop) {  // each rank starts with another peer
        const std::uint32_t peer = (call.rank + hop) % call.ranks;
        store_packet(place(peer, call.rank, one), ahead[i], epoch);
      }
    }
  }
  // In place: what is read again here is not yet written over.
  bool reduced = true;
  const auto reduce = [&](std::uint32_t packet, const LaneData& mine) {
    LaneData out;
    reduced = reduce_packet<Format, kOp, kBatch>(
        call, mine, [&](std::uint32_t rank) { return place(call.rank, rank, packet); }, epoch,
        budget, out);
    if (reduced) elements.write(call.recv[call.rank], packet, out);
  };
  const bool has_all = first_packet() + kAhead * packet_stride() >= packets;
  if (!has_all) read_ahead(first_packet());
#pragma unroll
  for (std::uint32_t i = 0; i < kAhead; ++i) {
    const std::uint32_t packet = first_packet() + i * packet_stride();
    if (reduced && packet < packets) reduce(packet, ahead[i]);
  }
  for (std::uint32_t packet = first_packet() + kAhead * packet_stride();
       packet < packets && reduced; packet += packet_stride())
    reduce(packet, elements.read(send, packet));
  end_epoch(call, !reduced);
}

template <typename Format, ReduceOp kOp>
auto kernel_for(std::uint32_t ranks) {
  if constexpr (kOp == ReduceOp::Sum &&
                (sizeof(typename Format::Stored) == 2 || std::is_same_v<Format, Plain<float>>)) {
    if (ranks == 2) return &one_shot_ll128<Format, kOp, 2>;
  }
  return &one_shot_ll128<Format, kOp, 4>;
}

}  // namespace

cudaError_t launch_one_shot_ll128(const CudaAllReduce& call, std::uint32_t blocks,
                                  cudaStream_t stream) {
  if (blocks == 0) blocks = ll128_blocks(ll128_packets(call.count * size_of(call.dtype)), 1);
  return with_kernel(call.dtype, call.op, [&]<typename Format, ReduceOp kOp>() {
    return launch(kernel_for<Format, kOp>(call.ranks), call, {blocks, kLl128Threads}, stream,
                  own_lie_on(call, sizeof(uint4)));
  });
}

cudaError_t load_one_shot_ll128(DType dtype, ReduceOp op) {
  return with_kernel(dtype, op, [&]<typename Format, ReduceOp kOp>() {
    return load_for_all_ranks(kernel_for<Format, kOp>);
  });
}

}  // namespace arcomm::device
