#include "daemon/comm/communicator.h"

#include <cinttypes>

namespace arcomm {
namespace {

std::uint64_t ms(std::uint64_t from_ns, std::uint64_t to_ns) {
  return to_ns > from_ns ? (to_ns - from_ns) / 1'000'000 : 0;
}

}  // namespace

bool Communicator::has_called(Rank rank, std::uint64_t seq) const {
  if (!world.is_here(rank)) return elsewhere != nullptr && elsewhere->has_called(rank, seq);
  const Arrival* arrival = board.find(seq);
  return seq < board.base() || (arrival != nullptr && arrival->has_seen(seat(rank).index));
}

namespace {

// Who keeps an operation waiting: ranks of this node, of which all is known; where there are none,
// those of others as far as they have told.
struct Missing {
  Rank first = kNoRank;
  int ranks = 0;
  std::string list;  // "rank 2", "ranks 2,3"
};
Missing missing_of(const Communicator& communicator, const Arrival& arrival) {
  Missing missing;
  const bool is_here = arrival.state == Arrival::State::Gathering;
  if (!is_here && communicator.elsewhere == nullptr) return missing;
  for (Rank rank = 0; rank < communicator.ranks(); ++rank) {
    if (communicator.world.is_here(rank) != is_here) continue;
    if (communicator.has_called(rank, arrival.seq)) continue;
    if (missing.ranks++ == 0) missing.first = rank;
    missing.list += (missing.ranks == 1 ? "" : ",") + std::to_string(rank);
  }
  missing.list = (missing.ranks == 1 ? "rank " : "ranks ") + missing.list;
  return missing;
}

pid_t pid_of(const Communicator& communicator, Rank rank) {
  if (communicator.world.is_here(rank)) return communicator.seat(rank).pid;
  return communicator.elsewhere->pid(rank);
}

// "pid 812", "pid 812 on node-b", "on node-b".
std::string whereabouts(const Communicator& communicator, Rank rank) {
  const pid_t pid = pid_of(communicator, rank);
  const bool has_pid = pid != 0 || communicator.world.is_here(rank);
  std::string text = has_pid ? "pid " + std::to_string(pid) : "";
  if (communicator.elsewhere != nullptr) {
    text += text.empty() ? "on " : " on ";
    text += communicator.elsewhere->node_name(rank);
  }
  return text;
}

bool waits_for_ranks(const Communicator& communicator, const Arrival& arrival) {
  return arrival.state == Arrival::State::Gathering ||
         (arrival.state == Arrival::State::Matched && communicator.elsewhere != nullptr);
}

}  // namespace

std::string diagnose(const Communicator& communicator, std::uint64_t now_ns) {
  const Arrival* oldest = nullptr;
  communicator.board.for_each_open([&](const Arrival& arrival) {
    if (oldest == nullptr && waits_for_ranks(communicator, arrival)) oldest = &arrival;
  });
  if (oldest == nullptr) return "";
  std::string text;
  int missing = 0;
  for (Rank rank = 0; rank < communicator.ranks(); ++rank) {
    if (communicator.has_called(rank, oldest->seq)) continue;
    if (missing++ != 0) text += ", ";
    text += "rank " + std::to_string(rank) + " (" + whereabouts(communicator, rank);
    if (communicator.world.is_here(rank))
      text += ", next seq " + std::to_string(communicator.seat(rank).next_seq);
    text += ")";
  }
  if (missing == 0) return "";  // the nodes are about to agree
  int waiting = 0;
  std::string who;
  for (Rank rank = 0; rank < communicator.ranks(); ++rank) {
    if (!communicator.has_called(rank, oldest->seq)) continue;
    who += (waiting++ == 0 ? "" : ",") + std::to_string(rank);
  }
  if (waiting == 0) return "";
  who = (waiting == 1 ? "rank " : "ranks ") + who;
  const Codec codec = oldest->signature.codec;
  return text + (missing == 1 ? " has" : " have") + " not called; " + who +
         (waiting == 1 ? " waits" : " wait") + " at seq " + std::to_string(oldest->seq) +
         (codec == Codec::None ? "" : " with codec " + std::string(text_of(codec))) + " since " +
         std::to_string(ms(oldest->first_ns, now_ns)) + " ms";
}

Failure describe_timeout(const Communicator& communicator, const Arrival& arrival,
                         std::uint64_t now_ns) {
  const std::uint64_t waited = ms(arrival.first_ns, now_ns);
  const bool is_matched = arrival.state == Arrival::State::Matched;
  const Missing missing = is_matched || waits_for_ranks(communicator, arrival)
                              ? missing_of(communicator, arrival)
                              : Missing();
  if (missing.ranks == 0 && is_matched) {
    return make_failure(ErrorCode::DeadlineExceeded, Reason::Timeout, kNoRank,
                        "seq %" PRIu64 ": other nodes did not agree to it within %" PRIu64 " ms",
                        arrival.seq, waited);
  }
  if (missing.ranks == 0) {
    return make_failure(ErrorCode::DeadlineExceeded, Reason::Timeout, kNoRank,
                        "seq %" PRIu64 " was not finished after %" PRIu64 " ms: %s", arrival.seq,
                        waited,
                        communicator.spans_nodes() ? "a node or the way to it is overloaded"
                                                   : "the device is overloaded");
  }
  if (missing.ranks == 1 || communicator.elsewhere != nullptr) {
    // The first of several with its node: that is where to look.
    const std::string where = whereabouts(communicator, missing.first);
    const std::string more =
        missing.ranks == 1 ? "" : " and " + std::to_string(missing.ranks - 1) + " more";
    return make_failure(ErrorCode::DeadlineExceeded, Reason::Timeout, missing.first,
                        "rank %d (%s)%s did not call seq %" PRIu64 " within %" PRIu64 " ms",
                        missing.first, where.c_str(), more.c_str(), arrival.seq, waited);
  }
  return make_failure(ErrorCode::DeadlineExceeded, Reason::Timeout, missing.first,
                      "%s did not call seq %" PRIu64 " within %" PRIu64 " ms", missing.list.c_str(),
                      arrival.seq, waited);
}

Failure describe_leave(const Communicator& communicator, Rank who_left, std::uint64_t first) {
  const bool is_elsewhere = !communicator.world.is_here(who_left);
  const std::string_view node =
      is_elsewhere ? communicator.elsewhere->node_name(who_left) : std::string_view();
  return make_failure(ErrorCode::Aborted, Reason::RemoteAborted, who_left,
                      "rank %d%s%.*s left the communicator before seq %" PRIu64 " could run",
                      who_left, is_elsewhere ? " on " : "", static_cast<int>(node.size()),
                      node.data(), first);
}

std::optional<Failure> describe_too_many_failed(const Communicator& communicator,
                                                std::uint32_t seat) {
  const ArrivalBoard& board = communicator.board;
  if (board.failed() != 0 && board.is_share_over(seat))
    return make_failure(ErrorCode::ResourceExhausted, Reason::Quota, communicator.seats[seat].rank,
                        "more operations of uid %u failed as ranks did not call than the %" PRIu64
                        " of a user, or %" PRIu64 " of a range",
                        communicator.seats[seat].uid, FailedShare::kMost,
                        FailedShare::kMostOfRange);
  if (board.failed() <= ArrivalBoard::kMaxFailed) return std::nullopt;
  return make_failure(ErrorCode::ResourceExhausted, Reason::Quota, kNoRank,
                      "more than %" PRIu64 " operations failed while a rank did not call",
                      ArrivalBoard::kMaxFailed);
}

}  // namespace arcomm
