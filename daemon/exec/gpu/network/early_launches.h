// Kernels between nodes that are launched when all seats here have called, while the nodes still
// agree: each stages its chunks and waits. Before the offer leaves, even: the way of an offer is
// shorter than that of a launch and of what it stages, and the slower of the two counts. Nothing is
// sent and no result written before the agreement (NetworkFifos::order). One that does not come
// soon, or not at all, ends the kernel: then the operation is launched anew when it comes.
//
// It pays where nodes are in step, and holds SMs of the GPU where they are not: so it is done after
// an operation on which the nodes agreed soon. Thread: the worker's.
#pragma once

#include <cstdint>
#include <vector>

#include "daemon/comm/communicator.h"
#include "daemon/exec/gpu/group/gpu_groups.h"
#include "daemon/exec/gpu/network/network_fifos.h"
#include "daemon/memory/buffer_registry.h"

namespace arcomm {

class EarlyLaunches {
 public:
  // Whose ranks wait no longer than this is not launched so.
  static constexpr std::uint64_t kLeastLeftNs = 10'000'000;

  EarlyLaunches(GpuGroups& groups, const BufferRegistry& buffers)
      : groups_(groups), buffers_(buffers) {}

  // A kernel waits no longer for the agreement (net.gpu_early_us; nodes that are in step take some
  // 10 us). 0: none is launched so.
  void use_most(std::uint64_t most_ns) { most_ns_ = most_ns; }
  // Whether the nodes that took so long for the last operation are taken to be in step.
  bool pays(std::uint64_t agreed_after_ns) const { return agreed_after_ns < most_ns_ / 2; }
  // All seats have called it, and it has elements: launched at once, or by work() when it is the
  // head, unless the agreement comes first.
  void want(Communicator& communicator, NetworkFifos& fifos, const Arrival& arrival,
            std::uint64_t now_ns);
  // The nodes have agreed on the head. True: its kernel is there. False: it is to be launched, once
  // has_kernel() says that none is there any more.
  bool agreed(const Communicator& communicator);
  bool has_kernel(const Communicator& communicator) const {
    const Early* const early = find(communicator);
    return early != nullptr && early->state != State::Wanted;
  }

  // Launches, lets go of what waits in vain, and forgets what has left. Whether it did any of it.
  bool work(std::uint64_t now_ns);
  // The agreement will not come, or not in time.
  void let_go(const Communicator& communicator);
  // For the Quiescer: all are let go of. True: none is there any more.
  bool have_left();
  // It goes, and its FIFOs wait for its kernel.
  void forget(const Communicator& communicator);
  bool empty() const { return all_.empty(); }

 private:
  enum class State : std::uint8_t { Wanted, Launched, Leaving };
  struct Early {
    Communicator* communicator = nullptr;
    NetworkFifos* fifos = nullptr;
    std::uint64_t seq = 0, since_ns = 0;
    State state = State::Wanted;
  };

  const Early* find(const Communicator& communicator) const;
  Early* find(const Communicator& communicator) {
    return const_cast<Early*>(std::as_const(*this).find(communicator));
  }
  // It, while it waits for the agreement.
  static const Arrival* awaited(const Early& early);
  bool launch(Early& early, const Arrival& arrival, std::uint64_t now_ns);
  static void let_go(Early& early);
  void leave_room(const Early& early) const;
  // True: it is over.
  bool look_at(Early& early, std::uint64_t now_ns, bool& moved);

  GpuGroups& groups_;
  const BufferRegistry& buffers_;
  std::uint64_t most_ns_ = 0;
  std::vector<Early> all_;
};

}  // namespace arcomm
