#include "daemon/exec/worker/snapshot.h"

#include <optional>
#include <string>
#include <string_view>

namespace arcomm {
namespace {

std::string_view text_of(ring::SessionState state) {
  switch (state) {
    case ring::SessionState::Open:
      return "open";
    case ring::SessionState::Quarantined:
      return "quarantined";
    case ring::SessionState::ShuttingDown:
      return "shutting down";
    case ring::SessionState::Closed:
      return "closed";
  }
  return "unknown";
}

std::uint64_t ms_since(std::uint64_t then_ns, std::uint64_t now_ns) {
  return now_ns > then_ns ? (now_ns - then_ns) / 1'000'000 : 0;
}

RankSnapshot snapshot_of(const Communicator& communicator, const Seat& seat, std::uint64_t now_ns) {
  RankSnapshot rank{.rank = seat.rank,
                    .session = seat.session,
                    .pid = seat.pid,
                    .next_seq = seat.next_seq,
                    .waiting = ""};
  if (const Arrival* waits = communicator.board.waiting(seat.index)) {
    rank.waiting = "seq " + std::to_string(waits->seq) + " since " +
                   std::to_string(ms_since(waits->first_ns, now_ns)) + " ms";
  }
  return rank;
}

RankSnapshot snapshot_of(const Elsewhere& elsewhere, Rank rank) {
  const std::optional<std::uint64_t> waits_at = elsewhere.waits_at(rank);
  return {.rank = rank,
          .session = {},
          .pid = elsewhere.pid(rank),
          .next_seq = 0,
          .waiting = waits_at ? "seq " + std::to_string(*waits_at) : ""};
}

}  // namespace

SessionSnapshot snapshot_of(const Session& session, std::uint64_t now_ns) {
  const SessionOrigin& origin = session.origin();
  return {.id = origin.id,
          .peer = {origin.pid, origin.uid, origin.gid},
          .process_name = origin.process_name,
          .state = std::string(text_of(session.state())),
          .communicators = session.members.size(),
          .buffers = session.buffers.size(),
          .registered_bytes = session.registered_bytes,
          .in_flight = session.in_flight(),
          .submitted = session.submitted,
          .completed = session.completed,
          .failed = session.failed,
          .rejected = session.rejected,
          .age_ms = ms_since(session.opened_ns, now_ns)};
}

CommunicatorSnapshot snapshot_of(const Communicator& communicator, std::uint64_t now_ns) {
  CommunicatorSnapshot shot;
  shot.unique_id = communicator.unique_id;
  shot.epoch = communicator.epoch;
  shot.default_coding = communicator.default_coding;
  shot.nodes = communicator.world.nodes();
  shot.policy = communicator.policy;
  const Failure* why = !communicator.ready()      ? &communicator.revoked
                       : !communicator.ended.ok() ? &communicator.ended
                                                  : nullptr;
  shot.state = why == nullptr ? "ready" : "revoked: " + std::string(why->message());
  if (why != nullptr) {
    shot.reason = why->reason;
    shot.culprit = why->culprit;
  }
  shot.operations_done = communicator.operations_done;
  shot.operations_failed = communicator.operations_failed;
  for (Rank rank = 0; rank < communicator.ranks(); ++rank) {
    const Elsewhere* elsewhere = communicator.elsewhere.get();
    const bool is_here = communicator.world.is_here(rank);
    if (!is_here && elsewhere == nullptr) continue;
    shot.ranks.push_back(is_here ? snapshot_of(communicator, communicator.seat(rank), now_ns)
                                 : snapshot_of(*elsewhere, rank));
    if (elsewhere != nullptr) shot.ranks.back().node = elsewhere->node_name(rank);
  }
  shot.diagnosis = diagnose(communicator, now_ns);
  return shot;
}

}  // namespace arcomm
