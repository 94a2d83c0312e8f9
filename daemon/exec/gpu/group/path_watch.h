// Watches what passes the worker by: operations that the resident grids take, and those that
// clients' own kernels run in their streams. Counts them, keeps the grids awake while some are
// open, and says which failed and how. Thread: the worker's. Whatever a client writes is no more
// than that.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "daemon/exec/backend.h"
#include "daemon/exec/gpu/group/gpu_groups.h"

namespace arcomm {

class PathWatch {
 public:
  explicit PathWatch(GpuGroups& groups) : groups_(groups) {}

  // What has failed since the last call; valid until the next. Of many some, and the rest then:
  // each is followed by what ends a communicator. Closes communicators that a rank has left once
  // what all had called has ended.
  std::span<const PathFailure> look(std::uint64_t now_ns);
  // When something was last posted or ended on any path; `moved` notes it for the launched one.
  std::uint64_t moved_ns() const { return moved_ns_; }
  void moved(std::uint64_t now_ns) { moved_ns_ = now_ns; }

  // What the watch knows of the communicator, for people.
  static void describe(const GpuGroup& group, CommunicatorSnapshot& shot);

 private:
  // False: a failure was noted, and the rest of the group is of no interest.
  bool look_at_in_stream(GpuGroup& group, GpuMember& member, std::uint64_t now_ns);
  bool look_at_resident(GpuGroup& group, GpuMember& member, std::uint64_t now_ns);
  // Whether no resident operation is open that others have ended.
  bool look_at(GpuGroup& group, std::uint64_t now_ns);
  void note_in_stream(const GpuGroup& group, Rank rank, const Done& how, std::uint64_t now_ns);
  void note_resident(const GpuGroup& group, Rank rank, const Done& how);
  // At the deadline of an operation that its grid has not come to.
  void note_not_started(const GpuGroup& group, Rank rank, std::uint32_t number);
  void note_broken(const GpuGroup& group, Rank local);
  // False: the ranks wait for each other on different paths, and that was noted.
  bool compare_paths(GpuGroup& group, std::uint64_t now_ns);

  bool is_full() const { return failures_.size() >= kMostAtOnce; }

  static constexpr std::size_t kMostAtOnce = 8;

  GpuGroups& groups_;
  std::vector<PathFailure> failures_;
  std::uint64_t moved_ns_ = 0;
};

}  // namespace arcomm
