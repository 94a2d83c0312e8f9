// The slots in communicators' scratches, the large part that only some algorithms need
// (kernels/launch/cuda_scratch.h). A communicator gets them on all its ranks' GPUs or on none,
// once, when the first plan comes that such an algorithm would run. Until then, and where there is
// no memory for them, without_slots() of that algorithm runs instead, on all ranks alike: the
// worker launches all of them. Thread: the worker's.
#pragma once

#include <cstdint>
#include <vector>

#include "daemon/exec/gpu/group/gpu_group.h"
#include "daemon/exec/gpu/quiescer.h"
#include "daemon/plan/operation.h"

namespace arcomm {

class ScratchSlots {
 public:
  ScratchSlots(Quiescer& quiescer, const std::vector<GpuGroup*>& groups, TurnBudget& turn)
      : quiescer_(quiescer), groups_(groups), turn_(turn) {}

  // gpu.scratch_bytes: of what is not there yet.
  void use_limit(std::uint64_t bytes) { limit_bytes_ = bytes; }

  // Operations like this one will be called.
  void want(GpuGroup& group, const Signature& signature);
  // Takes what is wanted, as far as the turn has time and the GPUs can be quiesced; else later.
  // Cheap where nothing is wanted.
  void tend(std::uint64_t now_ns);
  // The GPUs are quiesced. False: the turn has no more time, call again; else the group has its
  // slots, or it is said in it why not.
  bool take(GpuGroup& group);

 private:
  static constexpr std::uint64_t kAgainNs = 20'000'000;
  static constexpr std::uint64_t kLongestAgainNs = 1'000'000'000;  // each try holds up all tenants

  // "" where the limit leaves room.
  std::string find_hindrance(const GpuGroup& group, std::uint64_t bytes) const;
  static void refuse(GpuGroup& group, std::string why);

  Quiescer& quiescer_;
  const std::vector<GpuGroup*>& groups_;
  TurnBudget& turn_;
  std::uint64_t limit_bytes_ = ~std::uint64_t{0};
  bool is_wanted_ = false;  // by some group
  std::uint64_t again_ns_ = 0, put_off_ns_ = 0;
};

}  // namespace arcomm
