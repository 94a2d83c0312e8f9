// What is to be let go of, but not yet: GPU memory, ranks' places, prepared launches. It may go
// only while no resident grid runs and nothing waits in a queue; what goes together shares one such
// rest. Thread: the worker's.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <utility>
#include <vector>

#include "daemon/exec/gpu/group/gpu_group.h"

namespace arcomm {

class DeferredRelease {
 public:
  ~DeferredRelease();  // leaves what is left to the driver, which takes it when the process ends

  void add(Memory memory);
  // All that the member has; its place in the grid goes before its memory.
  void add(GpuMember& member);
  // May still be running in the members' queues.
  void add(std::vector<PreparedParts> prepared, const GpuGroup& group);

  bool empty() const { return items_.empty(); }
  // How many have gone since it was made.
  std::uint64_t gone() const { return gone_; }
  // Worth quiescing the GPUs?
  bool is_due(std::uint64_t now_ns) const;
  void put_off(std::uint64_t now_ns, std::uint64_t by_ns = kPutOffNs);
  // FailedPrecondition: it could not go when it was tried, and is not tried again yet.
  Status stuck(std::uint64_t now_ns) const;
  // A GPU in whose queue something of those is left that are gone; null: there is none.
  const GpuEngine* find_busy() const;
  // No grid runs, nor waits to. As much as the turn has time for; what cannot go yet is kept, and
  // the log says why.
  void release(std::vector<GpuEngine>& engines, TurnBudget& turn);

 private:
  static constexpr std::uint64_t kPutOffNs = 1'000'000'000;  // each try holds up all tenants

  struct Item {
    GpuEngine* engine = nullptr;
    std::uint32_t slot = kNoSlot, completion = kNoSlot, queue = 0;
    std::vector<Memory> memory;
    DoorbellPage doorbells;
    std::vector<PreparedParts> prepared;                             // may be running in
    std::vector<std::pair<GpuEngine*, std::uint32_t>> prepared_for;  // these GPUs' queues
  };
  void add(Item item);
  void keep(Error why);

  std::deque<Item> items_;
  std::uint64_t gone_ = 0;
  std::uint64_t first_ns_ = 0;
  std::uint64_t stuck_until_ns_ = 0;
  Error stuck_{};
};

}  // namespace arcomm
