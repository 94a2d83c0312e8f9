#include "daemon/comm/crossing.h"

#include <algorithm>
#include <optional>

namespace arcomm {
namespace {

struct Process {
  std::uint64_t node = 0;
  pid_t pid = 0;
  bool operator==(const Process&) const = default;
};

Process process_of(const Communicator& communicator, Rank rank) {
  const Elsewhere& elsewhere = *communicator.elsewhere;
  const bool is_here = communicator.world.is_here(rank);
  return {elsewhere.node_id(rank), is_here ? communicator.seat(rank).pid : elsewhere.pid(rank)};
}

// Where the rank has called, and others have not.
std::optional<std::uint64_t> waits_at(const Communicator& communicator, Rank rank) {
  if (!communicator.world.is_here(rank)) return communicator.elsewhere->waits_at(rank);
  const std::uint32_t seat = communicator.seat(rank).index;
  const Arrival* oldest = communicator.board.oldest_open();
  while (oldest != nullptr && oldest->state != Arrival::State::Gathering &&
         oldest->state != Arrival::State::Matched)
    oldest = oldest->open_behind;
  // Seats call in order: who has not called this one has called none behind it.
  if (oldest == nullptr || oldest->operations[seat] == nullptr) return std::nullopt;
  return oldest->seq;
}

template <typename Visit>
bool any_rank(const Communicator& communicator, Visit visit) {
  for (Rank rank = 0; rank < communicator.ranks(); ++rank) {
    if (visit(rank)) return true;
  }
  return false;
}

}  // namespace

Failure describe_crossing(const Communicator& mine, const Communicator& theirs, Rank whose) {
  return make_failure(ErrorCode::DeadlineExceeded, Reason::Crossed, whose,
                      "communicators %s and %s wait for each other: same order on all ranks?",
                      short_name(mine.unique_id, 4).c_str(),
                      short_name(theirs.unique_id, 4).c_str());
}

bool cross_here(const Communicator& one, const Arrival& arrival, const Communicator& other) {
  const auto waits_in_one = [&](const SessionId& session) {
    return std::ranges::any_of(one.seats, [&](const Seat& here) {
      return arrival.has_seen(here.index) && here.session == session;
    });
  };
  return std::ranges::any_of(one.seats, [&](const Seat& missing) {
    if (arrival.has_seen(missing.index)) return false;
    return std::ranges::any_of(other.seats, [&](const Seat& there) {
      if (there.session != missing.session) return false;
      const Arrival* waits = other.board.waiting(there.index);
      // It waits there. Does it wait for somebody who waits here?
      return waits != nullptr && std::ranges::any_of(other.seats, [&](const Seat& absent) {
               return !waits->has_seen(absent.index) && waits_in_one(absent.session);
             });
    });
  });
}

bool cross_between_nodes(const Communicator& one, std::uint64_t seq, const Communicator& other) {
  if (one.elsewhere == nullptr || other.elsewhere == nullptr) return false;
  const auto is_missed_by_one = [&](const Process& process) {
    return any_rank(one, [&](Rank rank) {
      return process_of(one, rank) == process && !one.has_called(rank, seq);
    });
  };
  const auto waits_in_one = [&](const Process& process) {
    return any_rank(one, [&](Rank rank) {
      return one.has_called(rank, seq) && process_of(one, rank) == process;
    });
  };
  // Who waits comes first: mostly it is nobody.
  return any_rank(other, [&](Rank there) {
    const std::optional<std::uint64_t> at = waits_at(other, there);
    if (!at) return false;
    const Process absent = process_of(other, there);
    if (absent.pid == 0 || !is_missed_by_one(absent)) return false;
    return any_rank(other, [&](Rank awaited) {
      const Process process = process_of(other, awaited);
      return process.pid != 0 && !other.has_called(awaited, *at) && waits_in_one(process);
    });
  });
}

}  // namespace arcomm
