#include <array>
#include <vector>

#include "daemon/proxy/host/host_waits.h"

namespace arcomm::proxy {
namespace {

// Each peer's count of steps, before this operation.
using FirstSteps = std::array<std::uint64_t, kMaxRanks>;

FirstSteps read_steps(const NetworkCall& call, std::uint32_t lane, FifoDirection direction) {
  FirstSteps first{};
  for (std::uint32_t peer = 0; peer < call.nodes; ++peer) {
    if (peer != call.node) first[peer] = *call.port(lane, peer, direction).steps;
  }
  return first;
}
void store_steps(const NetworkCall& call, std::uint32_t lane, FifoDirection direction,
                 const FirstSteps& first, std::uint64_t chunks) {
  for (std::uint32_t peer = 0; peer < call.nodes; ++peer) {
    if (peer != call.node) *call.port(lane, peer, direction).steps = first[peer] + chunks;
  }
}

}  // namespace

HostBlock stage_for_exchange(HostCall host, std::uint32_t lane) {
  const NetworkCall& call = host.call;
  HostBudget budget(call.timeout_ns, *host.clock);
  const std::uint64_t chunks = exchange_steps(call, lane);
  const FirstSteps first_sent = read_steps(call, lane, FifoDirection::Send);
  for (std::uint64_t n = 0; n < chunks; ++n) {
    const ElementRange chunk = chunk_of_lane(call.count, call.chunk_elements, call.lanes, lane, n);
    const std::uint32_t bytes = part_bytes(call, chunk);
    std::vector<unsigned char> own(call.makes_parts() ? bytes : 0);
    const unsigned char* from = call.makes_parts() ? own.data() : partial_at(call, chunk.first);
    // It is encoded once, when all peers have room.
    for (std::uint32_t hop = 1; call.codec != Codec::None && hop < call.nodes; ++hop) {
      const std::uint32_t peer = (call.node + hop) % call.nodes;
      const HostSendFifo fifo(call.port(lane, peer, FifoDirection::Send));
      if (!co_await Room(fifo, first_sent[peer] + n, budget)) co_return budget.verdict();
    }
    if (call.codec != Codec::None) make_part(call, chunk, own.data());
    // Each node starts with another peer, so that they do not all send to one.
    for (std::uint32_t hop = 1; hop < call.nodes; ++hop) {
      const std::uint32_t peer = (call.node + hop) % call.nodes;
      const HostSendFifo fifo(call.port(lane, peer, FifoDirection::Send));
      const std::uint64_t step = first_sent[peer] + n;
      const unsigned char* published = from;
      if (!co_await Room(fifo, step, budget)) co_return budget.verdict();
      if (call.makes_parts() || fifo.port().mode != SlotMode::Pointer) {
        unsigned char* to = fifo.place(step);
        if (to == nullptr) {
          budget.fail(fifo.port(), step, ErrorCode::DataLoss, Reason::Corrupt);
          co_return budget.verdict();
        }
        if (call.makes_parts() && call.codec == Codec::None) make_part(call, chunk, own.data());
        // In two parts: whoever looks too early sees half of it.
        std::memcpy(to, from, bytes / 2);
        co_await Turn{};
        std::memcpy(to + bytes / 2, from + bytes / 2, bytes - bytes / 2);
        co_await Turn{};
        if (call.makes_parts()) published = to;
      }
      fifo.publish(step, bytes, published);
      ring_if_asleep(host, fifo.port());
    }
  }
  for (std::uint32_t hop = 1; hop < call.nodes; ++hop) {
    const std::uint32_t peer = (call.node + hop) % call.nodes;
    const HostSendFifo fifo(call.port(lane, peer, FifoDirection::Send));
    // What is sent from where it lies must stay as it is until it has been.
    if (fifo.port().mode == SlotMode::Pointer && chunks != 0 &&
        !co_await Room(fifo, first_sent[peer] + chunks - 1 + kFifoSteps, budget)) {
      co_return budget.verdict();
    }
  }
  // In place the other block stores them, which reads them, too.
  if (!call.is_in_place()) store_steps(call, lane, FifoDirection::Send, first_sent, chunks);
  co_return ErrorCode::Ok;
}

HostBlock combine_exchange(HostCall host, std::uint32_t lane) {
  const NetworkCall& call = host.call;
  HostBudget budget(call.timeout_ns, *host.clock);
  const std::uint64_t chunks = exchange_steps(call, lane);
  const FirstSteps first_received = read_steps(call, lane, FifoDirection::Receive);
  const FirstSteps first_sent =
      call.is_in_place() ? read_steps(call, lane, FifoDirection::Send) : FirstSteps{};
  for (std::uint32_t peer = 0; peer < call.nodes; ++peer) {
    if (peer == call.node) continue;
    const HostReceiveFifo fifo(call.port(lane, peer, FifoDirection::Receive));
    fifo.begin(first_received[peer], first_received[peer] + chunks);
    ring_if_asleep(host, fifo.port());
  }
  for (std::uint64_t n = 0; n < chunks; ++n) {
    const ElementRange chunk = chunk_of_lane(call.count, call.chunk_elements, call.lanes, lane, n);
    const std::uint32_t bytes = part_bytes(call, chunk);
    AllReduceArgs args;
    args.num_inputs = call.nodes;
    args.count = chunk.size();
    args.outputs[0] = result_at(call, chunk.first);
    std::vector<unsigned char> coded(call.codec != Codec::None ? bytes : 0);
    unsigned char* const own =
        call.codec != Codec::None ? coded.data() : call.seats.parts + lane * call.seats.part_bytes;
    if (call.makes_parts()) make_part(call, chunk, own);
    for (std::uint32_t peer = 0; peer < call.nodes; ++peer) {
      if (peer == call.node) {
        args.inputs[peer] = call.makes_parts() ? own : partial_at(call, chunk.first);
        continue;
      }
      const HostReceiveFifo fifo(call.port(lane, peer, FifoDirection::Receive));
      const std::uint64_t step = first_received[peer] + n;
      if (!co_await Data(fifo, step, budget)) co_return budget.verdict();
      args.inputs[peer] = fifo.data(step, bytes);
      if (args.inputs[peer] == nullptr) {
        budget.fail(fifo.port(), step, ErrorCode::DataLoss, Reason::Corrupt);
        co_return budget.verdict();
      }
    }
    // In place: the result goes where the other block still copies or sends from.
    for (std::uint32_t peer = 0; call.is_in_place() && peer < call.nodes; ++peer) {
      if (peer == call.node) continue;
      const HostSendFifo fifo(call.port(lane, peer, FifoDirection::Send));
      if (!co_await Taken(fifo, first_sent[peer] + n, budget)) co_return budget.verdict();
    }
    co_await Turn{};
    combine(call, args, true);
    for (std::uint32_t seat = 1; seat < call.seats.count; ++seat) {
      std::memcpy(
          static_cast<unsigned char*>(call.seats.recv[seat]) + chunk.first * size_of(call.dtype),
          result_at(call, chunk.first), chunk.size() * size_of(call.dtype));
    }
    co_await Turn{};
    for (std::uint32_t peer = 0; peer < call.nodes; ++peer) {
      if (peer == call.node) continue;
      const HostReceiveFifo fifo(call.port(lane, peer, FifoDirection::Receive));
      fifo.consumed(first_received[peer] + n, first_received[peer] + chunks);
      ring_if_asleep(host, fifo.port());
    }
  }
  store_steps(call, lane, FifoDirection::Receive, first_received, chunks);
  if (call.is_in_place()) store_steps(call, lane, FifoDirection::Send, first_sent, chunks);
  co_return ErrorCode::Ok;
}

}  // namespace arcomm::proxy
