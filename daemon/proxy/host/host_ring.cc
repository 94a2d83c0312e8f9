#include "daemon/proxy/host/host_waits.h"

namespace arcomm::proxy {

// One way of the ring: where this node sends and receives, and how far it is.
struct RingWay {
  HostSendFifo out;
  HostReceiveFifo in;
  std::uint64_t sent, received;  // steps
  std::uint64_t last_received;   // one past the operation's
};

namespace {

RingWay way_of(const NetworkCall& call, bool is_bidirectional, std::uint32_t lane, std::uint32_t to,
               std::uint32_t from) {
  const FifoPort& out = call.port(lane, to, FifoDirection::Send);
  const FifoPort& in = call.port(lane, from, FifoDirection::Receive);
  return {HostSendFifo(out), HostReceiveFifo(in), *out.steps, *in.steps,
          *in.steps + ring_steps(call, is_bidirectional, lane, from, FifoDirection::Receive)};
}

std::uint32_t bytes_in(ElementRange chunk, DType type) {
  return static_cast<std::uint32_t>(chunk.size() * size_of(type));
}

}  // namespace

// No nested coroutines: each wait is in this one, as the kernel's are in one function.
HostBlock run_ring(HostCall host, std::uint32_t lane, bool is_bidirectional) {
  const NetworkCall& call = host.call;
  HostBudget budget(call.timeout_ns, *host.clock);
  const Ring ring{call.node, call.nodes, is_bidirectional};
  const DType type = partial_type(call);
  RingWay right = way_of(call, is_bidirectional, lane, ring.right(), ring.left());
  RingWay left = way_of(call, is_bidirectional, lane, ring.left(), ring.right());
  right.in.begin(right.received, right.last_received);
  ring_if_asleep(host, right.in.port());
  if (ring.left_rounds() != 0) {
    left.in.begin(left.received, left.last_received);
    ring_if_asleep(host, left.in.port());
  }

  for (std::uint64_t partition = 0; partition < ring_partitions(call, lane); ++partition) {
    const RingChunks own(call, lane, ring.reduce_sends(0));
    for (std::uint64_t n = 0; n < own.in_partition(partition); ++n) {
      const ElementRange chunk = own.chunk(partition, n);
      if (!co_await Room(right.out, right.sent, budget)) co_return budget.verdict();
      unsigned char* to = right.out.place(right.sent);
      if (to == nullptr) {
        budget.fail(right.out.port(), right.sent, ErrorCode::DataLoss, Reason::Corrupt);
        co_return budget.verdict();
      }
      std::memcpy(to, partial_at(call, chunk.first), bytes_in(chunk, type));
      co_await Turn{};
      right.out.publish(right.sent++, bytes_in(chunk, type), to);
      ring_if_asleep(host, right.out.port());
    }

    for (std::uint32_t round = 0; round < ring.reduce_rounds(); ++round) {
      const bool is_last = round + 1 == ring.reduce_rounds();
      const RingChunks shard(call, lane, ring.reduce_receives(round));
      for (std::uint64_t n = 0; n < shard.in_partition(partition); ++n) {
        const ElementRange chunk = shard.chunk(partition, n);
        if (!co_await Data(right.in, right.received, budget)) co_return budget.verdict();
        const unsigned char* come = right.in.data(right.received, bytes_in(chunk, type));
        if (come == nullptr) {
          budget.fail(right.in.port(), right.received, ErrorCode::DataLoss, Reason::Corrupt);
          co_return budget.verdict();
        }
        if (!co_await Room(right.out, right.sent, budget)) co_return budget.verdict();
        unsigned char* to = right.out.place(right.sent);
        if (to == nullptr) {
          budget.fail(right.out.port(), right.sent, ErrorCode::DataLoss, Reason::Corrupt);
          co_return budget.verdict();
        }
        AllReduceArgs args;
        args.num_inputs = 2;
        args.inputs[0] = come;
        args.inputs[1] = partial_at(call, chunk.first);
        args.count = chunk.size();
        args.outputs[0] = is_last ? result_at(call, chunk.first) : to;
        combine(call, args, is_last);
        co_await Turn{};
        right.in.consumed(right.received++, right.last_received);
        ring_if_asleep(host, right.in.port());
        const DType sent = is_last ? call.dtype : type;
        if (is_last) std::memcpy(to, result_at(call, chunk.first), bytes_in(chunk, sent));
        co_await Turn{};
        right.out.publish(right.sent++, bytes_in(chunk, sent), to);
        ring_if_asleep(host, right.out.port());
        if (!is_last || ring.left_rounds() == 0) continue;
        if (!co_await Room(left.out, left.sent, budget)) co_return budget.verdict();
        to = left.out.place(left.sent);
        if (to == nullptr) {
          budget.fail(left.out.port(), left.sent, ErrorCode::DataLoss, Reason::Corrupt);
          co_return budget.verdict();
        }
        std::memcpy(to, result_at(call, chunk.first), bytes_in(chunk, sent));
        co_await Turn{};
        left.out.publish(left.sent++, bytes_in(chunk, sent), to);
        ring_if_asleep(host, left.out.port());
      }
    }

    for (std::uint32_t round = 0; round < ring.right_rounds(); ++round) {
      for (const bool to_left : {false, true}) {
        const std::uint32_t rounds = to_left ? ring.left_rounds() : ring.right_rounds();
        if (round >= rounds) continue;
        RingWay& way = to_left ? left : right;
        const RingChunks shard(call, lane,
                               to_left ? ring.from_right(round) : ring.from_left(round));
        for (std::uint64_t n = 0; n < shard.in_partition(partition); ++n) {
          const ElementRange chunk = shard.chunk(partition, n);
          const std::uint32_t bytes = bytes_in(chunk, call.dtype);
          if (!co_await Data(way.in, way.received, budget)) co_return budget.verdict();
          const unsigned char* come = way.in.data(way.received, bytes);
          if (come == nullptr) {
            budget.fail(way.in.port(), way.received, ErrorCode::DataLoss, Reason::Corrupt);
            co_return budget.verdict();
          }
          if (round + 1 < rounds) {
            if (!co_await Room(way.out, way.sent, budget)) co_return budget.verdict();
            unsigned char* to = way.out.place(way.sent);
            if (to == nullptr) {
              budget.fail(way.out.port(), way.sent, ErrorCode::DataLoss, Reason::Corrupt);
              co_return budget.verdict();
            }
            std::memcpy(to, come, bytes);
            co_await Turn{};
            way.out.publish(way.sent++, bytes, to);
            ring_if_asleep(host, way.out.port());
          }
          std::memcpy(result_at(call, chunk.first), come, bytes);
          co_await Turn{};
          way.in.consumed(way.received++, way.last_received);
          ring_if_asleep(host, way.in.port());
        }
      }
    }
  }
  *right.out.port().steps = right.sent;
  *right.in.port().steps = right.received;
  if (ring.left_rounds() != 0) {
    *left.out.port().steps = left.sent;
    *left.in.port().steps = left.received;
  }
  co_return ErrorCode::Ok;
}

}  // namespace arcomm::proxy
