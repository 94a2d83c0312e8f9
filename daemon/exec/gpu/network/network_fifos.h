// The FIFOs between one rank's network kernels and the proxy's engine (proto/gpu/device_fifo.h), a
// pair for each lane and peer, with the memory they lie in: a part of the worker's pinned staging
// for what both sides see, and memory of the GPU for what the kernel alone does. Thread: the
// worker's.
//
// In the pinned part: windows for what peers send, slots for what is sent to them, the FIFOs'
// words, the verdict of the kernel, and what is copied to the GPU at the begin. In the GPU's (of
// zeros): NetworkWords, the ports, and how many steps each has taken.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "daemon/exec/gpu/group/gpu_group.h"
#include "daemon/exec/gpu/network/lane_windows.h"
#include "daemon/memory/staging_pool.h"
#include "daemon/plan/network/gpu_exchange.h"
#include "daemon/proxy/proxy_engine.h"
#include "kernels/network/launch_network.h"
#include "proto/operation_spec.h"

namespace arcomm {

class NetworkFifos {
 public:
  // Of the memory of each member's GPU. That of the first runs the kernel.
  static std::uint64_t device_bytes(const CommunicatorSpec& spec);

  struct Parts {
    const CommunicatorSpec& spec;
    const GpuMember& member;  // of which the memory `network` is used
    StagingPool& pool;        // pinned
    Links& links;
    proxy::ProxyEngine& engine;
    std::uint64_t group = 0;  // what the engine calls the communicator
  };
  explicit NetworkFifos(const Parts& parts);
  ~NetworkFifos();  // is_let_go() has said true, or nothing comes any more
  NetworkFifos(const NetworkFifos&) = delete;
  NetworkFifos& operator=(const NetworkFifos&) = delete;

  // Once. After an error, as after a failure, it is to be let go of.
  Status open(const Parts& parts);

  LaneWindows& windows() { return windows_; }
  const LaneWindows& windows() const { return windows_; }

  // How an operation is cut.
  GpuExchange cut_of(const OperationSpec& called) const;

  // One of this node's ranks, as the first one's GPU reaches it.
  struct Seat {
    const void* send = nullptr;
    void* recv = nullptr;
    NetworkLaunch::Waiter waiter;
  };
  struct Operation {
    std::span<const Seat> seats;  // by local rank
    OperationSpec called;         // of elements
    std::uint32_t divisor = 1;
    std::uint64_t timeout_ns = 0;  // of the kernel's waits
    std::uint32_t number = 0;      // of the verdict
  };
  // One at a time. It stages and waits: nothing is sent, and nothing of others' shown to it, before
  // order(). An error: it was not launched, and the FIFOs serve no more.
  Status launch(const GpuMember& member, const Operation& operation);
  // What was launched, or is next, is to happen: until then, by the engine's clock. Once for each.
  Status order(const OperationSpec& called, std::uint64_t deadline_ns);
  // Instead: it is to end, and has_ended() will say so; then, and not before, forget_early() makes
  // way for the next.
  void end_early() { engine_.end_early(group_); }
  void forget_early() {
    engine_.forget_early(group_);
    has_steps_ = false;
  }

  void fail(const Error& why) { engine_.fail_group(group_, why); }

  // The kernel of the last operation has ended: its verdict, with that operation's number.
  bool has_ended() const;
  Done verdict() const;
  // Everything that was published has been sent, everything that has come was consumed.
  bool is_settled() const;
  // What failed is taken back. False: bytes are on their way; ask again, with the engine driven
  // meanwhile.
  bool is_let_go();

 private:
  struct Layout;
  // To the GPU, before what is launched next.
  Status copy(const GpuMember& member, std::byte* to, std::span<const std::byte> from) const;
  Status add(const Parts& parts, std::uint32_t node, std::uint32_t lane, FifoDirection direction,
             const Layout& layout);
  NetworkCall call_of(const Operation& operation) const;

  StagingPool& pool_;
  proxy::ProxyEngine& engine_;
  const std::uint64_t group_;
  const uid_t uid_;
  const std::uint32_t slot_bytes_, lanes_;
  const bool combines_seats_;  // partials travel as accumulators
  LaneWindows windows_;
  std::span<std::byte> memory_;
  std::byte* device_ = nullptr;  // the GPU's
  std::span<FifoPort> ports_;    // pinned: what is copied there
  // Of all operations that were ordered, as the kernel counts them, too; one that was ended early
  // may have counted what it staged. The others are pinned: what is copied there.
  std::vector<std::uint64_t> steps_;
  std::span<std::uint64_t> copied_steps_;
  bool has_steps_ = true;  // the GPU
  std::uint64_t* verdict_ = nullptr;
  bool has_ports_ = false;  // the GPU
  std::uint32_t number_ = 0;
  bool is_launched_ = false;                                // ever
  std::vector<std::shared_ptr<proxy::FifoOrders>> orders_;  // as ports_; null where there is none
  std::vector<proxy::FifoId> fifos_;
};

}  // namespace arcomm
