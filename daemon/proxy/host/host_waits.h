// What blocks wait for, and what every block does beside waiting: telling the proxy,
// copying, combining. For the host twins alone.
#pragma once

#include <cstring>

#include "daemon/proxy/host/host_block.h"
#include "daemon/proxy/host/host_fifo.h"
#include "daemon/proxy/host/host_producer.h"
#include "kernels/args.h"
#include "kernels/codec/format.h"
#include "kernels/host/launch.h"
#include "kernels/network/ring_steps.h"

namespace arcomm::proxy {

// One wait of a block's on one FIFO. if (!co_await Room(...)) co_return budget.verdict();
template <typename Fifo, bool (Fifo::*kHasCome)(std::uint64_t) const>
class FifoAwaited final : public HostBlock::Awaited {
 public:
  FifoAwaited(const Fifo& fifo, std::uint64_t step, HostBudget& budget)
      : fifo_(fifo), step_(step), budget_(budget) {}
  bool is_over() override {
    has_come_ = (fifo_.*kHasCome)(step_);
    return has_come_ || !budget_.goes_on(fifo_.port(), step_);
  }
  bool await_ready() const { return false; }
  void await_suspend(std::coroutine_handle<HostBlock::promise_type> block) {
    block.promise().awaited = this;
  }
  bool await_resume() const { return has_come_; }

 private:
  Fifo fifo_;
  std::uint64_t step_;
  HostBudget& budget_;
  bool has_come_ = false;
};
using Room = FifoAwaited<HostSendFifo, &HostSendFifo::has_room>;
using Taken = FifoAwaited<HostSendFifo, &HostSendFifo::is_taken>;
using Data = FifoAwaited<HostReceiveFifo, &HostReceiveFifo::has_come>;

// After something was published: wakes a proxy that sleeps, which only a CPU can.
inline void ring_if_asleep(const HostCall& host, const FifoPort& port) {
  std::atomic_thread_fence(std::memory_order_seq_cst);  // pairs with ProxyThread::last_look's
  std::atomic_ref doorbell(port.fifo->doorbell);
  if (doorbell.load(std::memory_order_relaxed) == 0) return;
  if (doorbell.exchange(0, std::memory_order_relaxed) != 0 && host.wake != nullptr) (*host.wake)();
}

// What partials are made of, on the wire and before it.
inline DType partial_type(const NetworkCall& call) {
  return call.is_wide ? accumulator_of(call.dtype) : call.dtype;
}
inline const unsigned char* partial_at(const NetworkCall& call, std::uint64_t element) {
  return static_cast<const unsigned char*>(call.partial) + element * size_of(partial_type(call));
}
inline unsigned char* result_at(const NetworkCall& call, std::uint64_t element) {
  return static_cast<unsigned char*>(call.result) + element * size_of(call.dtype);
}

// What a chunk takes as it travels.
inline std::uint32_t part_bytes(const NetworkCall& call, const ElementRange& chunk) {
  return static_cast<std::uint32_t>(call.codec == Codec::None
                                        ? chunk.size() * size_of(partial_type(call))
                                        : coded_bytes(call.codec, chunk.size()));
}

// Some nodes' parts into another part, or all of them into the result.
inline void combine(const NetworkCall& call, AllReduceArgs args, bool is_last) {
  const bool are_elements = !call.is_wide && call.codec == Codec::None;
  args.num_outputs = 1;
  args.divisor = call.divisor;
  args.dtype = is_last ? call.dtype : partial_type(call);
  args.op = !is_last && call.op == ReduceOp::Avg ? ReduceOp::Sum : call.op;
  args.codec = call.codec;
  args.stage = is_last && !are_elements ? ReduceStage::Final : ReduceStage::Whole;
  all_reduce_range(Choice{}, args, 0, args.count);
}

// This node's part of a chunk, where it does not lie there: its ranks' inputs, combined in their
// order, with a codec encoded.
inline void make_part(const NetworkCall& call, const ElementRange& chunk, unsigned char* to) {
  const std::uint64_t first_byte = chunk.first * size_of(call.dtype);
  AllReduceArgs args;
  const auto input_of = [&](const void* elements) {
    return static_cast<const unsigned char*>(elements) + first_byte;
  };
  args.num_inputs = call.has_seats() ? call.seats.count : 1;
  if (!call.has_seats()) args.inputs[0] = input_of(call.partial);
  for (std::uint32_t seat = 0; seat < call.seats.count; ++seat)
    args.inputs[seat] = input_of(call.seats.send[seat]);
  args.num_outputs = 1;
  args.outputs[0] = to;
  args.count = chunk.size();
  args.dtype = call.dtype;
  args.op = call.op == ReduceOp::Avg ? ReduceOp::Sum : call.op;
  args.codec = call.codec;
  args.stage =
      call.is_wide || call.codec != Codec::None ? ReduceStage::Partial : ReduceStage::Whole;
  all_reduce_range(Choice{}, args, 0, args.count);
}

}  // namespace arcomm::proxy
