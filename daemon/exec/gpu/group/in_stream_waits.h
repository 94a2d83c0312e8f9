// How many in-stream operations each rank has begun, as clients say, and by that which one
// waits for which. Those communicators whose ranks have begun differently many, or had until just
// now, are in an index by session: what a rank waits for is found among what waits, however many
// communicators there are. Thread: the worker's.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <vector>

#include "daemon/exec/gpu/group/gpu_group.h"

namespace arcomm {

class InStreamWaits {
 public:
  // The member has begun so many, ever.
  void note(GpuGroup& group, GpuMember& member, std::uint32_t begun, std::uint64_t now_ns);
  void forget(GpuGroup& group);
  // The communicator in which a rank that was missing here waited for `rank`, which waited here
  // until just now, or null.
  GpuGroup* find_crossing(const GpuGroup& group, Rank rank, std::uint64_t now_ns);

  std::size_t indexed() const;                            // communicators, once for each session
  std::uint64_t looked_at() const { return looked_at_; }  // ever, to find crossings

 private:
  void drop(std::span<GpuGroup* const> over);  // all of them in one pass

  std::map<SessionId, std::vector<GpuGroup*>> waiting_;
  std::uint64_t looked_at_ = 0;
};

}  // namespace arcomm
