#include "daemon/control/peers/meetings/node_meetings.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "daemon/control/peers/meetings/meeting_place.h"
#include "proto/text.h"

namespace arcomm {
namespace {

using std::chrono::milliseconds;

// The rest may be on its way on this node.
constexpr milliseconds kLocalPatience{1};
// A root that has restarted hears of it after so long.
constexpr milliseconds kAnnounceEvery{1000};
constexpr milliseconds kAnnounceAgain{100};
// Before a deadline: who is missing may have changed on other nodes.
constexpr milliseconds kLastLook{100};
constexpr milliseconds kShortestCall{20};  // that a message may take
constexpr std::size_t kAbandonedKept = 256;
constexpr std::size_t kMissingBytes = 400;

// A library that reads other launch tables knows of no codec for an error class, whatever the
// others choose by theirs.
std::uint32_t coding_rules_of(const Rendezvous::Waiting& waiting) {
  return waiting.same_tables ? kCodingRules : 0;
}

}  // namespace

NodeMeetings::NodeMeetings(Parts parts) : parts_(std::move(parts)) {
  parts_.rendezvous.watch(
      {.changed = [this](const UniqueIdBytes& unique_id) { changed(unique_id); },
       .failed = [this](const UniqueIdBytes& unique_id,
                        const Error& why) { failed(unique_id, why); }});
}

void NodeMeetings::changed(const UniqueIdBytes& unique_id) {
  if (!parts_.peers.has_peers()) return;
  const auto at = meetings_.find(unique_id);
  if (!parts_.rendezvous.waiting(unique_id)) {
    if (at != meetings_.end()) withdraw(at, nullptr);
    return;
  }
  Meeting& meeting = at != meetings_.end() ? at->second : meetings_[unique_id];
  meeting.communicator = 0;
  meeting.is_outdated = true;
  meeting.next = std::min(meeting.next, parts_.now() + kLocalPatience);
  parts_.arm(meeting.next);
}

void NodeMeetings::failed(const UniqueIdBytes& unique_id, const Error& why) {
  if (const auto at = meetings_.find(unique_id); at != meetings_.end()) withdraw(at, &why);
}

void NodeMeetings::withdraw(Meetings::iterator at, const Error* why) {
  const UniqueIdBytes unique_id = at->first;
  const Meeting meeting = std::move(at->second);
  meetings_.erase(at);
  if (meeting.first_version == 0) return;
  v1::AnnounceRequest request;
  write_unique_id(unique_id, *request.mutable_unique_id());
  request.set_ranks(1);
  request.set_version(++versions_);
  request.set_culprit(kNoRank);
  if (why != nullptr) {
    request.set_code(static_cast<std::uint32_t>(why->code));
    request.set_reason(static_cast<std::uint32_t>(why->reason));
    request.set_culprit(why->rank);
    request.set_why(why->message);
  }
  // One that is lost leaves a meeting at the root that comes to nothing.
  parts_.peers.announce(meeting.root, std::move(request), parts_.now() + kAnnounceEvery,
                        [](const Result<v1::AnnounceReply>&) {});
}

void NodeMeetings::tick() {
  const Clock::time_point now = parts_.now();
  for (auto at = meetings_.begin(); at != meetings_.end(); ++at) {
    if (at->second.next <= now) announce(at);
  }
}

std::optional<NodeMeetings::Clock::time_point> NodeMeetings::next_tick() const {
  Clock::time_point next = Clock::time_point::max();
  for (const auto& [unique_id, meeting] : meetings_) next = std::min(next, meeting.next);
  if (next == Clock::time_point::max()) return std::nullopt;
  return next;
}

void NodeMeetings::announce(Meetings::iterator at) {
  const UniqueIdBytes& unique_id = at->first;
  Meeting& meeting = at->second;
  const Clock::time_point now = parts_.now();
  const std::optional<Rendezvous::Waiting> waiting = parts_.rendezvous.waiting(unique_id);
  meeting.next = Clock::time_point::max();
  if (!waiting) return;
  meeting.root = meeting_place(unique_id, parts_.peers.addresses());
  if (meeting.root.empty()) meeting.root = parts_.peers.self().address;
  meeting.next = on_grid(now + kAnnounceEvery);
  if (meeting.root.empty()) return;  // not known yet
  if (meeting.is_under_way && !meeting.is_outdated) return;
  v1::AnnounceRequest request;
  write_unique_id(unique_id, *request.mutable_unique_id());
  request.set_ranks(waiting->ranks);
  request.set_uid(waiting->uid);
  request.set_worker(parts_.name_of_worker(waiting->worker));
  request.set_remembered_epoch(waiting->epoch);
  request.set_segment_limit_bytes(waiting->segment_limit_bytes);
  request.set_default_codec(static_cast<std::uint32_t>(waiting->default_coding.codec));
  const ErrorClass& wanted = waiting->default_coding.error_class;
  request.set_default_least_snr_db(wanted.least_snr_db);
  request.set_default_most_relative_error(wanted.most_relative_error);
  request.set_gpu_codecs(parts_.allows_gpu_codecs());
  request.set_coding_rules(coding_rules_of(*waiting));
  request.set_culprit(kNoRank);
  Clock::time_point earliest = Clock::time_point::max();
  for (const Rendezvous::Waiting::Caller& caller : waiting->callers) {
    v1::AnnounceRequest::Caller& wire = *request.add_callers();
    wire.set_rank(caller.rank);
    wire.set_pid(caller.pid);
    wire.set_device(caller.device);
    wire.set_remaining_ms(remaining_ms(caller.deadline, now));
    earliest = std::min(earliest, caller.deadline);
  }
  if (earliest - kLastLook > now) meeting.next = std::min(meeting.next, earliest - kLastLook);
  const std::uint64_t version = ++versions_;
  request.set_version(version);
  if (meeting.first_version == 0) meeting.first_version = version;
  meeting.last_version = version;
  meeting.is_under_way = true;
  meeting.is_outdated = false;
  // Early enough that a timeout can say what was wrong with the way there.
  const Clock::time_point deadline =
      std::max(std::min(now + kAnnounceEvery, earliest - kLastLook / 2), now + kShortestCall);
  parts_.peers.announce(meeting.root, std::move(request), deadline,
                        [this, unique_id, version](const Result<v1::AnnounceReply>& reply) {
                          announced(unique_id, version, reply);
                        });
}

void NodeMeetings::announced(const UniqueIdBytes& unique_id, std::uint64_t version,
                             const Result<v1::AnnounceReply>& reply) {
  const auto at = meetings_.find(unique_id);
  if (at == meetings_.end() || at->second.last_version != version) return;
  Meeting& meeting = at->second;
  meeting.is_under_way = false;
  if (!reply) {
    parts_.rendezvous.note(unique_id,
                           {.missing = {},
                            .culprit = kNoRank,
                            .remark = "ranks on other nodes meet at " + meeting.root +
                                      ", which does not answer: " + reply.error().message});
    // Of an address that nobody has, there is nothing to hurry for.
    const bool is_nowhere = reply.error().code == ErrorCode::NotFound;
    meeting.next = std::min(meeting.next,
                            on_grid(parts_.now() + (is_nowhere ? kAnnounceEvery : kAnnounceAgain)));
    return parts_.arm(meeting.next);
  }
  meeting.heard_from = parts_.peers.find(meeting.root).instance;
  Rendezvous::Elsewhere elsewhere{.missing = safe_text(reply->missing(), kMissingBytes),
                                  .culprit = reply->culprit(),
                                  .remark = {}};
  if (elsewhere.culprit < 0 || elsewhere.culprit >= kMaxRanks) elsewhere.culprit = kNoRank;
  parts_.rendezvous.note(unique_id, std::move(elsewhere));
}

void NodeMeetings::form(const PeerNode& root, const v1::FormRequest& request,
                        Answer<v1::FormReply> answer) {
  Result<PlannedCommunicator> plan = read(request, parts_.peers.self().instance, parts_.now());
  if (!plan) return answer(plan.error());
  const UniqueIdBytes unique_id = plan->spec.unique_id;
  const std::uint64_t communicator = plan->spec.communicator;
  if (is_abandoned(communicator)) {
    return answer(error(ErrorCode::Aborted, Reason::Revoked, "it was abandoned before it came"));
  }
  const auto at = meetings_.find(unique_id);
  const std::optional<Rendezvous::Waiting> waiting = parts_.rendezvous.waiting(unique_id);
  const bool is_as_announced =
      at != meetings_.end() && waiting && meets_at(at->second, root) &&
      waiting->ranks == static_cast<int>(plan->rank_devices.size()) &&
      std::ranges::equal(waiting->callers, plan->here, {}, &Rendezvous::Waiting::Caller::rank);
  // By a reload since then, or by another caller of the same rank.
  const bool allows_less =
      waiting && ((plan->spec.policy.gpu_codecs && !parts_.allows_gpu_codecs()) ||
                  (plan->spec.policy.coding_rules == kCodingRules &&
                   coding_rules_of(*waiting) != kCodingRules));
  if (!is_as_announced || allows_less || waiting->epoch >= plan->spec.epoch) {
    if (at != meetings_.end() && waiting)
      changed(unique_id);  // what the root knows is not so any more
    v1::FormReply reply;
    reply.set_changed(true);
    return answer(reply);
  }
  at->second.communicator = communicator;
  at->second.forming_root = root;
  at->second.next = Clock::time_point::max();
  auto prepare = [this, plan = *plan, worker = parts_.name_of_worker(waiting->worker)](
                     std::function<void(const Status&)> done) {
    link(plan, worker, std::move(done));
  };
  parts_.rendezvous.build_part(unique_id,
                               {.spec = std::move(plan->spec),
                                .rank_devices = std::move(plan->rank_devices),
                                .segment_limit_bytes = plan->segment_limit_bytes,
                                .deadline = plan->deadline,
                                .prepare = std::move(prepare)},
                               [answer = std::move(answer)](const Status& formed) {
                                 if (!formed) return answer(formed.error());
                                 answer(v1::FormReply());
                               });
}

// All at once; the first that fails is what is told, when the last has answered.
void NodeMeetings::link(const PlannedCommunicator& plan, const std::string& worker,
                        std::function<void(const Status&)> done) {
  struct Links {
    std::size_t open;
    Status status;
  };
  auto links = std::make_shared<Links>(Links{plan.nodes.size() - 1, {}});
  for (std::size_t i = 0; i < plan.nodes.size(); ++i) {
    if (i == plan.spec.here) continue;
    parts_.links.ensure(plan.nodes[i], worker, plan.deadline, [links, done](const Status& linked) {
      if (!linked && links->status) links->status = linked;
      if (--links->open == 0) done(links->status);
    });
  }
}

Status NodeMeetings::commit(const PeerNode& root, const v1::CommitRequest& request) {
  const Result<UniqueIdBytes> unique_id = read_unique_id(request.unique_id());
  if (!unique_id) return unique_id.error();
  const auto at = meetings_.find(*unique_id);
  if (at != meetings_.end() && at->second.communicator == request.communicator()) {
    if (at->second.forming_root.instance != root.instance) {
      return error(ErrorCode::PermissionDenied, Reason::BadValue, "it does not meet at ",
                   root.to_string());
    }
    meetings_.erase(at);  // nothing to withdraw
  }
  return parts_.rendezvous.commit(*unique_id, request.communicator());
}

Status NodeMeetings::abandon(const PeerNode& root, const v1::AbandonRequest& request) {
  const Result<UniqueIdBytes> unique_id = read_unique_id(request.unique_id());
  if (!unique_id) return unique_id.error();
  const std::optional<Error> why =
      read_error(request.code(), request.reason(), request.culprit(), request.why());
  const auto at = meetings_.find(*unique_id);
  if (request.epoch() == 0) {
    if (at == meetings_.end() || !why || !meets_at(at->second, root) ||
        request.version() < at->second.first_version || at->second.communicator != 0)
      return {};
    meetings_.erase(at);  // the root has forgotten it
    parts_.rendezvous.refuse(*unique_id, *why);
    return {};
  }
  abandoned_.push_back(request.communicator());
  if (abandoned_.size() > kAbandonedKept) abandoned_.pop_front();
  if (at == meetings_.end() || at->second.communicator != request.communicator() ||
      at->second.forming_root.instance != root.instance)
    return {};
  if (why) meetings_.erase(at);
  parts_.rendezvous.abandon(*unique_id, request.communicator(), why);
  return {};
}

void NodeMeetings::peer_lost(const PeerNode& peer, const Error& why) {
  std::map<UniqueIdBytes, std::uint64_t> lost;  // and the communicator that is formed; 0: none
  for (const auto& [unique_id, meeting] : meetings_) {
    const bool is_forming = meeting.communicator != 0;
    if (is_forming ? meeting.forming_root.instance == peer.instance
                   : meeting.heard_from == peer.instance)
      lost.emplace(unique_id, meeting.communicator);
  }
  for (const auto& [unique_id, communicator] : lost) {
    const Error told = error(ErrorCode::Unavailable, Reason::RemoteDied, "node ", peer.to_string(),
                             ", where the ranks of this communicator met, is lost: ", why.message);
    meetings_.erase(unique_id);
    if (communicator != 0) {
      parts_.rendezvous.abandon(unique_id, communicator, told);
    } else {
      parts_.rendezvous.refuse(unique_id, told);
    }
  }
}

// Its address may be written in more than one way.
bool NodeMeetings::meets_at(const Meeting& meeting, const PeerNode& peer) const {
  return meeting.root == peer.address ||
         (peer.instance != 0 && parts_.peers.find(meeting.root).instance == peer.instance);
}

bool NodeMeetings::is_abandoned(std::uint64_t communicator) const {
  return std::ranges::find(abandoned_, communicator) != abandoned_.end();
}

}  // namespace arcomm
