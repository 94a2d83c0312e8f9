#include "daemon/control/peers/meetings/form_attempts.h"

#include <algorithm>
#include <utility>

#include "daemon/control/peers/meetings/rank_words.h"

namespace arcomm {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kCommitTime{100};  // of the callers' time, a quarter of it at the most
constexpr milliseconds kCommitTry{200};   // as it may be told twice
constexpr milliseconds kCommitAgain{50};
constexpr milliseconds kAbandonIn{2000};  // Abandon has no deadline but that

}  // namespace

void FormAttempts::begin(const Plan& plan) {
  const Clock::time_point now = parts_.now();
  const std::uint64_t communicator = parts_.random();
  const Clock::time_point ready_by =
      plan.deadline - std::min<Clock::duration>(kCommitTime, (plan.deadline - now) / 4);
  v1::FormRequest request;
  write_unique_id(plan.unique_id, *request.mutable_unique_id());
  request.set_epoch(plan.epoch);
  request.set_communicator(communicator);
  request.set_remaining_ms(remaining_ms(ready_by, now));
  request.set_segment_limit_bytes(plan.segment_limit_bytes);
  NetworkPolicy policy = parts_.policy();
  policy.gpu_codecs = plan.no_gpu_codecs_on.empty();
  policy.no_gpu_codecs_on = plan.no_gpu_codecs_on;
  policy.coding_rules = plan.coding_rules;
  *request.mutable_policy() = write(policy);
  for (const auto& [rank, device] : plan.devices) request.add_rank_devices(device);
  Attempt attempt{.unique_id = plan.unique_id,
                  .epoch = plan.epoch,
                  .deadline = plan.deadline,
                  .members = {},
                  .why = {}};
  for (const HeldRanks::Member& member : plan.members) {
    attempt.members.push_back({.peer = member.peer, .ranks = member.ranks, .again = {}});
    v1::FormRequest::Node& node = *request.add_nodes();
    node.mutable_identity()->set_address(member.peer.address);
    node.mutable_identity()->set_name(member.peer.name);
    node.mutable_identity()->set_instance(member.peer.instance);
    node.mutable_ranks()->Add(member.ranks.begin(), member.ranks.end());
  }
  attempts_.emplace(communicator, std::move(attempt));
  for (std::size_t i = 0; i < plan.members.size(); ++i) {
    parts_.peers.form(plan.members[i].peer, request, ready_by,
                      [this, communicator, i](const Result<v1::FormReply>& reply) {
                        answered(communicator, i, reply);
                      });
  }
}

void FormAttempts::fail(const UniqueIdBytes& unique_id, PeerId member, const Error& why) {
  std::vector<std::uint64_t> failed;
  for (auto& [communicator, attempt] : attempts_) {
    const bool is_member = std::ranges::any_of(
        attempt.members, [member](const auto& one) { return one.peer.instance == member; });
    if (!is_member || attempt.unique_id != unique_id) continue;
    give_up(attempt, why);
    failed.push_back(communicator);
  }
  for (const std::uint64_t communicator : failed) settle(communicator);
}

void FormAttempts::answered(std::uint64_t communicator, std::size_t member,
                            const Result<v1::FormReply>& reply) {
  const auto at = attempts_.find(communicator);
  if (at == attempts_.end() || at->second.members[member].has_answered) return;
  Attempt& attempt = at->second;
  Attempt::Member& one = attempt.members[member];
  one.has_answered = true;
  if (!reply) {
    Error why = reply.error();
    why.message = list_of(one.ranks) + " of node " + one.peer.to_string() +
                  " could not be had: " + why.message;
    why.rank = one.ranks.front();
    give_up(attempt, why);
  } else if (reply->changed()) {
    one.is_sent = one.is_told = true;  // nothing is formed there
    give_up(attempt, std::nullopt);
  }
  settle(communicator);
}

void FormAttempts::give_up(Attempt& attempt, std::optional<Error> why) {
  const bool is_committed =
      !attempt.is_failed && std::ranges::all_of(attempt.members, [](auto& one) {
        return one.has_answered && one.is_sent;
      });
  if (is_committed) return;
  attempt.is_failed = true;
  if (!attempt.why) attempt.why = std::move(why);
}

void FormAttempts::settle(std::uint64_t communicator) {
  const auto at = attempts_.find(communicator);
  if (at == attempts_.end()) return;
  Attempt& attempt = at->second;
  const bool all_have = std::ranges::all_of(attempt.members, &Attempt::Member::has_answered);
  if (!attempt.is_failed && !all_have) return;
  const bool holds = !attempt.is_failed;
  if (holds) {
    HeldRanks::Held held{.communicator = communicator, .epoch = attempt.epoch, .members = {}};
    for (const Attempt::Member& member : attempt.members)
      held.members.push_back({member.peer, member.ranks});
    parts_.holds(attempt.unique_id, held);
  }
  std::vector<std::size_t> due;
  for (std::size_t i = 0; i < attempt.members.size(); ++i) {
    Attempt::Member& member = attempt.members[i];
    // What cannot be any more is told at once, also to a member still at it: it may wait for a link
    // to a node that was not reached.
    if ((holds && !member.has_answered) || std::exchange(member.is_sent, true)) continue;
    due.push_back(i);
  }
  for (const std::size_t member : due)
    holds ? commit(communicator, member) : abandon(communicator, member);
  // One that was told by somebody else may have been the last.
  if (const auto now = attempts_.find(communicator);
      now != attempts_.end() && std::ranges::all_of(now->second.members, &Attempt::Member::is_told))
    attempts_.erase(now);
}

void FormAttempts::commit(std::uint64_t communicator, std::size_t member) {
  const Attempt& attempt = attempts_.at(communicator);
  v1::CommitRequest request;
  write_unique_id(attempt.unique_id, *request.mutable_unique_id());
  request.set_epoch(attempt.epoch);
  request.set_communicator(communicator);
  parts_.peers.commit(attempt.members[member].peer, std::move(request),
                      std::min(attempt.deadline, parts_.now() + kCommitTry),
                      [this, communicator, member](const Result<v1::PeerEmpty>& reply) {
                        const auto at = attempts_.find(communicator);
                        if (at == attempts_.end()) return;
                        // One that refuses has given its part back, and its worker tells the
                        // others' workers.
                        const bool is_lost =
                            !reply && (reply.error().code == ErrorCode::Unavailable ||
                                       reply.error().code == ErrorCode::DeadlineExceeded);
                        if (!is_lost || parts_.now() + kCommitAgain >= at->second.deadline)
                          return told(communicator, member);
                        const Clock::time_point again = parts_.now() + kCommitAgain;
                        at->second.members[member].again = again;
                        parts_.arm(again);
                      });
}

void FormAttempts::abandon(std::uint64_t communicator, std::size_t member) {
  const Attempt& attempt = attempts_.at(communicator);
  v1::AbandonRequest request;
  write_unique_id(attempt.unique_id, *request.mutable_unique_id());
  request.set_epoch(attempt.epoch);
  request.set_communicator(communicator);
  request.set_culprit(kNoRank);
  if (attempt.why) {
    request.set_code(static_cast<std::uint32_t>(attempt.why->code));
    request.set_reason(static_cast<std::uint32_t>(attempt.why->reason));
    request.set_culprit(attempt.why->rank);
    request.set_why(attempt.why->message);
  }
  parts_.peers.abandon(
      attempt.members[member].peer, std::move(request), parts_.now() + kAbandonIn,
      [this, communicator, member](const Result<v1::PeerEmpty>&) { told(communicator, member); });
}

void FormAttempts::told(std::uint64_t communicator, std::size_t member) {
  const auto at = attempts_.find(communicator);
  if (at == attempts_.end()) return;
  at->second.members[member].is_told = true;
  if (std::ranges::all_of(at->second.members, &Attempt::Member::is_told)) attempts_.erase(at);
}

void FormAttempts::peer_lost(const PeerNode& peer, const Error& why) {
  std::vector<std::uint64_t> under_way;
  for (auto& [communicator, attempt] : attempts_) {
    for (Attempt::Member& member : attempt.members) {
      if (member.peer.instance != peer.instance) continue;
      give_up(attempt, with_culprit(error(ErrorCode::Aborted, Reason::RemoteDied,
                                          list_of(member.ranks), " were on node ", peer.to_string(),
                                          ", which is lost: ", why.message),
                                    member.ranks.front()));
      // Nobody is there who could answer, or be told.
      member.has_answered = member.is_sent = member.is_told = true;
      member.again.reset();
      under_way.push_back(communicator);
    }
  }
  for (const std::uint64_t communicator : under_way) settle(communicator);
}

void FormAttempts::tick() {
  const Clock::time_point now = parts_.now();
  std::vector<std::pair<std::uint64_t, std::size_t>> again;
  for (auto& [communicator, attempt] : attempts_) {
    for (std::size_t i = 0; i < attempt.members.size(); ++i) {
      std::optional<Clock::time_point>& due = attempt.members[i].again;
      if (!due || *due > now) continue;
      due.reset();
      again.emplace_back(communicator, i);
    }
  }
  for (const auto& [communicator, member] : again) commit(communicator, member);
}

std::optional<FormAttempts::Clock::time_point> FormAttempts::next_tick() const {
  std::optional<Clock::time_point> next;
  for (const auto& [communicator, attempt] : attempts_) {
    for (const Attempt::Member& member : attempt.members)
      if (member.again) next = next ? std::min(*next, *member.again) : member.again;
  }
  return next;
}

}  // namespace arcomm
