#include "daemon/exec/gpu/group/path_watch.h"

#include <algorithm>
#include <cinttypes>
#include <optional>
#include <string>

#include "daemon/exec/gpu/group/path_mismatch.h"
#include "daemon/plan/recorded_algorithm.h"

namespace arcomm {
namespace {

// Beyond a plan's timeout, which the grid keeps.
constexpr std::uint64_t kGraceNs = 1'000'000'000;
// A rank that waits for longer than this for others may find that they called something else. Far
// more than ranks that work together are apart, so that nothing is compared while all is well.
constexpr std::uint64_t kCompareAfterNs = 1'000'000;
// A grid that was not seen for so long has not started.
constexpr std::uint64_t kAbsentNs = 10'000'000;
// What clients run needs no worker; but what it is mixed with should not find it in long naps.
constexpr std::uint64_t kNotLongAgoNs = 102'000'000;

// For ranks that have not come, in operations of which a path of the daemon's knows.
bool waits_for_others(const GpuGroup& group, std::uint64_t now_ns) {
  const Arrival* head = group.communicator->board.head();
  if (head != nullptr && head->state == Arrival::State::Gathering &&
      now_ns > head->first_ns + kCompareAfterNs)
    return true;
  return std::ranges::any_of(group.members, [now_ns](const GpuMember& member) {
    return member.posted != member.done && now_ns > member.changed_ns + kCompareAfterNs;
  });
}

Failure failure_of(const Done& how, const char* path, Rank rank) {
  const ErrorCode code = error_code_from(how.code);
  const Reason reason = reason_from(how.reason);
  const auto culprit = static_cast<Rank>(how.culprit_rank);
  if (reason != Reason::Timeout) {
    return make_failure(code, reason, culprit, "%s operation %" PRIu32 " of rank %d: %s", path,
                        how.number, rank, text_of(reason).data());
  }
  return make_failure(code, reason, culprit,
                      "%s operation %" PRIu32 ": rank %d waited for rank %d until its deadline",
                      path, how.number, rank, culprit);
}

}  // namespace

std::span<const PathFailure> PathWatch::look(std::uint64_t now_ns) {
  failures_.clear();
  for (GpuEngine& engine : groups_.engines) {
    engine.grid_wanted = false;
    if (engine.grid().started()) engine.grid_seen_ns = now_ns;
  }
  for (GpuGroup* group : groups_.all) {
    const bool even = look_at(*group, now_ns);
    const Communicator& communicator = *group->communicator;
    // A rank of another node has left.
    if (!group->ending && communicator.spans_nodes() && !communicator.ended.ok())
      group->ending = done_of(communicator.ended);
    if (!group->ending || group->closed || !even) continue;
    const ArrivalBoard& board = communicator.board;
    if (board.size() == board.failed()) groups_.close(*group, *group->ending);
  }
  return failures_;
}

bool PathWatch::look_at(GpuGroup& group, std::uint64_t now_ns) {
  bool even = true;
  for (GpuMember& member : group.members) {
    if (member.engine->broken() && !group.closed) {
      note_broken(group, member.rank);
      return false;
    }
    if (group.is_in_stream() && !look_at_in_stream(group, member, now_ns)) return false;
    if (member.slot == kNoSlot) continue;
    if (!look_at_resident(group, member, now_ns)) return false;
    even &= group.closed || !member.active || reached(member.done, group.ends_after);
  }
  return compare_paths(group, now_ns) && even;
}

bool PathWatch::compare_paths(GpuGroup& group, std::uint64_t now_ns) {
  if (group.closed || group.members.size() < 2 || now_ns < group.compared_ns + kCompareAfterNs ||
      !waits_for_others(group, now_ns))
    return true;
  group.compared_ns = now_ns;
  const std::optional<PathMismatch> found = find_path_mismatch(group);
  if (!found) return true;
  failures_.push_back({.communicator = group.communicator,
                       .failure = found->failure,
                       .rank = found->rank,
                       .number = found->number,
                       .algorithm = found->algorithm});
  return false;
}

bool PathWatch::look_at_in_stream(GpuGroup& group, GpuMember& member, std::uint64_t now_ns) {
  if (!member.active || group.closed) return true;
  const std::uint32_t begun = member.doorbells.in_stream_begun();
  if (begun != member.in_stream_begun) {
    member.engine->operations_elsewhere +=
        static_cast<std::uint32_t>(begun - member.in_stream_begun);
    groups_.in_stream_waits.note(group, member, begun, now_ns);
    moved_ns_ = std::max(moved_ns_, now_ns - std::min(now_ns, kNotLongAgoNs));
  }
  Done failed = member.doorbells.in_stream_failed();
  if (failed.code == 0) return true;
  if (is_full()) return false;  // the word stays: next time
  if (failed.culprit_rank < 0 ||
      failed.culprit_rank >= static_cast<std::int16_t>(group.members.size()))
    failed.culprit_rank = static_cast<std::int16_t>(member.rank);
  note_in_stream(group, member.rank, failed, now_ns);
  return false;
}

bool PathWatch::look_at_resident(GpuGroup& group, GpuMember& member, std::uint64_t now_ns) {
  GpuEngine& engine = *member.engine;
  const ResidentStatus status = member.grid().status(member.slot);
  const std::uint32_t posted = member.active ? member.doorbells.resident_posted() : member.posted;
  if (posted != member.posted || status.done != member.done) {
    engine.operations_elsewhere += static_cast<std::uint32_t>(status.done - member.done);
    member.posted = posted;
    member.done = status.done;
    member.changed_ns = engine.grid_moved_ns = moved_ns_ = now_ns;
  }
  if (group.closed) return true;
  if (status.failed.code != 0) {
    if (is_full()) return false;
    note_resident(group, member.rank, status.failed);
    return false;
  }
  if (!member.active || posted == status.done) return true;
  // Quiescing takes the grid away for less time than this. Without a plan nothing can be posted.
  if (member.budget_ns != 0 && now_ns >= engine.grid_seen_ns + kAbsentNs &&
      now_ns >= member.changed_ns + member.budget_ns) {
    if (is_full()) return false;
    note_not_started(group, member.rank, status.done + 1);
    return false;
  }
  if (now_ns < member.changed_ns + member.budget_ns + kGraceNs) engine.grid_wanted = true;
  return true;
}

void PathWatch::note_in_stream(const GpuGroup& group, Rank rank, const Done& how,
                               std::uint64_t now_ns) {
  PathFailure failed{.communicator = group.communicator,
                     .failure = failure_of(how, "in-stream", rank),
                     .rank = rank,
                     .number = how.number,
                     .algorithm = kInStreamKernel};
  if (failed.failure.reason == Reason::Timeout) {
    const GpuGroup* other = groups_.in_stream_waits.find_crossing(group, rank, now_ns);
    if (other != nullptr) failed.crossed = other->communicator;
  }
  failures_.push_back(failed);
}

void PathWatch::note_resident(const GpuGroup& group, Rank rank, const Done& how) {
  if (error_code_from(how.code) == ErrorCode::Internal) return note_broken(group, rank);
  failures_.push_back({.communicator = group.communicator,
                       .failure = failure_of(how, "resident", rank),
                       .rank = rank,
                       .number = how.number,
                       .algorithm = kResidentKernel});
}

// The grid keeps the deadlines of what it has seen.
void PathWatch::note_not_started(const GpuGroup& group, Rank rank, std::uint32_t number) {
  failures_.push_back(
      {.communicator = group.communicator,
       .failure = make_failure(ErrorCode::DeadlineExceeded, Reason::Timeout, rank,
                               "resident operation %" PRIu32
                               ": rank %d's GPU was full of other work until its deadline",
                               number, rank),
       .rank = rank,
       .number = number,
       .algorithm = kResidentKernel});
}

void PathWatch::note_broken(const GpuGroup& group, Rank local) {
  const Rank rank = global_rank(group, local);
  failures_.push_back(
      {.communicator = group.communicator,
       .failure = make_failure(ErrorCode::Internal, Reason::None, rank,
                               "rank %d's GPU does not answer: see the daemon's log", rank),
       .rank = rank,
       .algorithm = kResidentKernel});
}

void PathWatch::describe(const GpuGroup& group, CommunicatorSnapshot& shot) {
  if (group.members.empty()) return;
  shot.launches = group.launches;
  shot.why_not_in_stream = group.why_not_in_stream;
  shot.why_no_slots = group.why_no_slots;
  shot.most_sms = group.most_sms;
  shot.why_no_codecs = group.why_no_codecs;
  if (group.communicator->spans_nodes()) return;  // the worker sees all that it calls
  // Numbers come round.
  const GpuMember& first = group.members.front();
  std::uint32_t most = first.posted + first.in_stream_begun;
  std::uint32_t least = first.done + first.in_stream_begun;
  for (const GpuMember& member : group.members) {
    const std::uint32_t called = member.posted + member.in_stream_begun;
    const std::uint32_t ended = member.done + member.in_stream_begun;
    shot.ranks[static_cast<std::size_t>(member.rank)].next_seq += called;
    if (reached(called, most)) most = called;
    if (reached(least, ended)) least = ended;
  }
  shot.operations_done += least;
  if (!shot.diagnosis.empty() || group.closed) return;
  for (const GpuMember& member : group.members) {
    const std::uint32_t called = member.posted + member.in_stream_begun;
    if (called == most) continue;
    shot.diagnosis += (shot.diagnosis.empty() ? "" : "; ") + std::string("rank ") +
                      std::to_string(member.rank) + " has called " + std::to_string(called) +
                      " small operations, others " + std::to_string(most);
  }
}

}  // namespace arcomm
