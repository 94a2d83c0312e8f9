#include "daemon/exec/gpu/group/path_mismatch.h"

#include <array>
#include <cstddef>

#include "daemon/comm/mismatch.h"
#include "daemon/plan/recorded_algorithm.h"

namespace arcomm {
namespace {

struct LastCall {
  Rank rank = kNoRank;
  LaunchPath path = LaunchPath::Launched;
  std::uint32_t number = 0;
  NotedCall noted;
};

class LastCalls {
 public:
  explicit LastCalls(const GpuGroup& group) {
    for (const GpuMember& member : group.members) {
      if (!member.active) continue;
      add(member, LaunchPath::Launched, member.taken);
      add(member, LaunchPath::Resident, member.posted);
      add(member, LaunchPath::InStream, member.doorbells.in_stream_begun());
    }
  }
  const LastCall* begin() const { return calls_.data(); }
  const LastCall* end() const { return calls_.data() + count_; }

 private:
  void add(const GpuMember& member, LaunchPath path, std::uint32_t number) {
    const std::optional<NotedCall> noted = member.doorbells.called(path, number);
    if (noted) calls_[count_++] = {member.rank, path, number, *noted};
  }

  std::array<LastCall, std::size_t{kMaxGpuRanks} * kNotedPaths> calls_;
  std::size_t count_ = 0;
};

std::uint8_t recorded(LaunchPath path) {
  return path == LaunchPath::InStream ? kInStreamKernel : kResidentKernel;
}

}  // namespace

std::optional<PathMismatch> find_path_mismatch(const GpuGroup& group) {
  const LastCalls calls(group);
  for (const LastCall& first : calls) {
    for (const LastCall& late : calls) {
      // What took another path of the same table is another operation, unless a client lies.
      if (late.rank <= first.rank || late.path == first.path ||
          late.noted.call != first.noted.call || late.noted.spec == first.noted.spec)
        continue;
      const LastCall& unseen = late.path == LaunchPath::Launched ? first : late;
      return PathMismatch{.failure = mismatch_of(late.rank, Signature::whole(late.noted.spec),
                                                 first.rank, Signature::whole(first.noted.spec)),
                          .rank = unseen.rank,
                          .number = unseen.number,
                          .algorithm = recorded(unseen.path)};
    }
  }
  return std::nullopt;
}

}  // namespace arcomm
