// A wire format that is not plain: it has packets but no LL16 lines, its output is another type
// than its packet, and it serves sums alone. It is only compiled, to hold the algorithms on LL128
// lines to what kernels/codec/concept.cuh lets them use.
#include "kernels/all_reduce/launch_exchange.cuh"
#include "kernels/all_reduce/one_shot_ll128.cuh"
#include "kernels/all_reduce/two_shot_ll128.cuh"
#include "kernels/codec/plain.cuh"
#include "kernels/in_stream/exchange.cuh"
#include "kernels/in_stream/pair_ll128.cuh"

namespace arcomm::device {
namespace {

template <typename ElementFormat>
struct PacketsOnlyCodec {
  using Format = ElementFormat;
  using Stored = typename Format::Stored;
  using Plain = PlainCodec<Format>;
  using Packet = LaneData;
  struct Output {
    LaneData decoded;
  };

  static constexpr bool serves(ReduceOp op) { return op == ReduceOp::Sum; }
  static constexpr std::uint64_t kPacketElements = Plain::kPacketElements;

  class Packets {
   public:
    __device__ Packets(ElementRange range, bool vectors) : plain_(range, vectors) {}
    __device__ Packet read(const void* send, std::uint64_t packet) const {
      return plain_.read(send, packet);
    }
    __device__ void write(void* recv, std::uint64_t packet, const Output& output) const {
      plain_.write(recv, packet, output.decoded);
    }

   private:
    typename Plain::Packets plain_;
  };

  template <ReduceOp kOp>
  class PacketResult {
   public:
    __device__ void combine_next(const Packet& packet, bool is_first) {
      plain_.combine_next(packet, is_first);
    }
    __device__ Packet as_packet(std::uint32_t ranks) const { return plain_.as_packet(ranks); }
    __device__ Output as_output(std::uint32_t ranks) const { return {plain_.as_output(ranks)}; }

   private:
    typename Plain::template PacketResult<kOp> plain_;
  };

  template <ReduceOp kOp>
  using PairResult = PacketResult<kOp>;

  static __device__ Output decode(const Packet& packet) { return {Plain::decode(packet)}; }
};

using Tried = PacketsOnlyCodec<Float16>;
static_assert(PacketCodec<Tried> && !LineCodec<Tried>);

struct WithoutDecode {
  using Packet = LaneData;
};
static_assert(!PacketCodec<WithoutDecode>);

struct Shards {
  ElementRange range;
  bool vectors;
  __device__ ElementRange of(std::uint32_t) const { return range; }
  __device__ std::uint32_t packets() const { return packets_of<Tried>(range.size()); }
};

}  // namespace

__global__ void launched_with_packets_alone(const __grid_constant__ CudaAllReduce call, bool hops) {
  LaunchExchange exchange(call);
  if (hops) {
    two_shot_ll128<Tried, ReduceOp::Sum, 4>(exchange, Shards{{0, call.count}, false});
  } else {
    one_shot_ll128<Tried, ReduceOp::Sum, 4>(exchange, false);
  }
}

__global__ void in_stream_with_packets_alone(const __grid_constant__ InStreamCall call) {
  __shared__ BlockState state;
  InStreamExchange exchange(call, state);
  if (call.ranks == 2) {
    pair_ll128<Tried, ReduceOp::Sum>(exchange, false);
  } else {
    two_shot_ll128<Tried, ReduceOp::Sum, 4>(exchange, InStreamShards<Tried>(call));
  }
}

}  // namespace arcomm::device
