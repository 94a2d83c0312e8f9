// The plans that one communicator has at the daemon, by what was asked. A plan may be given up when
// no start of it can be under way: never once a graph has captured it or a caller holds it, else
// when the GPU's own counts say so.
// Thread: its owner's lock. References stay good until erase().
#pragma once

#include <cstddef>
#include <cstdint>
#include <list>
#include <unordered_map>
#include <vector>

#include "client/cuda/post/post.h"
#include "proto/gpu/device_mailbox.h"
#include "proto/operation_spec.h"
#include "proto/types.h"

namespace arcomm::client {

struct GpuPlanKey {
  std::uintptr_t send = 0, recv = 0;
  OperationSpec spec{};
  BufferId send_buffer{}, recv_buffer{};  // change when an address comes to mean other memory
  friend bool operator==(const GpuPlanKey&, const GpuPlanKey&) = default;
};

struct GpuPlan {
  GpuPlanKey key;
  PlanId id{};
  LaunchPath path = LaunchPath::Resident;
  std::uint64_t timeout_ns = 0;
  bool is_captured = false;
  std::uint32_t holders = 0;  // arcPlan_t handles
  bool may_be_gone = false;   // the daemon was told to destroy it and did not answer

  bool may_go() const { return !is_captured && holders == 0; }
};

class GpuPlanCache {
 public:
  GpuPlan* find(const GpuPlanKey& key);  // null: unknown. Counts as a use.
  GpuPlan& insert(const GpuPlan& plan);
  void erase(const GpuPlan& plan);
  std::size_t size() const { return plans_.size(); }
  // Those that may go, least recently used first, at most `most` of them.
  std::vector<GpuPlan*> oldest(std::size_t most);
  std::vector<GpuPlan*> users_of(BufferId buffer);
  std::vector<GpuPlan*> all();

 private:
  struct Hash {
    std::size_t operator()(const GpuPlanKey& key) const;
  };
  using List = std::list<GpuPlan>;  // most recently used first

  List plans_;
  std::unordered_map<GpuPlanKey, List::iterator, Hash> by_key_;
};

// Whether every one of `launched` starts of the plan has ended: all have been posted, and the path
// has got past the last of them.
bool has_ended(const PlanNote& note, std::uint32_t launched, std::uint64_t path_done);

}  // namespace arcomm::client
