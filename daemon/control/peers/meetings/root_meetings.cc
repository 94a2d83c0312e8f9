#include "daemon/control/peers/meetings/root_meetings.h"

#include <algorithm>
#include <set>
#include <sstream>
#include <utility>

#include "daemon/control/peers/meetings/rank_words.h"

namespace arcomm {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kUnheard{5000};  // a node announces what waits every second
// A node hears that a communicator has ended when its worker has; who rebuilds it elsewhere may be
// faster by so much.
constexpr milliseconds kDoubt{200};
constexpr milliseconds kTellIn{2000};  // Abandon has no deadline but that
constexpr std::size_t kVersionsKept = 16384;
constexpr int kSilentNamed = 4;

std::vector<Rank> ranks_of(const Announcement& said) {
  std::vector<Rank> ranks;
  for (const auto& [rank, caller] : said.callers) ranks.push_back(rank);
  return ranks;
}

}  // namespace

RootMeetings::RootMeetings(Parts parts)
    : parts_(std::move(parts)),
      attempts_({.peers = parts_.peers,
                 .policy = parts_.policy,
                 .random = parts_.random,
                 .now = parts_.now,
                 .arm = parts_.arm,
                 .holds = [this](const UniqueIdBytes& unique_id, const HeldRanks::Held& held) {
                   holds(unique_id, held);
                 }}) {}

Result<v1::AnnounceReply> RootMeetings::announced(const PeerNode& from,
                                                  const v1::AnnounceRequest& request) {
  Result<Announcement> said = read(request, parts_.now());
  if (!said) return said.error();
  const UniqueIdBytes unique_id = said->unique_id;
  v1::AnnounceReply reply;
  reply.set_culprit(kNoRank);
  if (is_news(from, *said)) {
    auto at = meetings_.find(unique_id);
    const bool was_here = at != meetings_.end() && at->second.nodes.contains(from.instance);
    if (said->failure) {
      Error why = *said->failure;
      why.message = "on node " + from.to_string() + ": " + why.message;
      if (was_here) fail(at, from.instance, why);
      attempts_.fail(unique_id, from.instance, why);
      return reply;
    }
    if (was_here) remove(at, from.instance);
    if (said->callers.empty()) return reply;
    if (const Status admitted = admit(from, *said); !admitted) {
      refuse(from, *said, admitted.error());
      return reply;
    }
    Clock::time_point latest = Clock::time_point::min();
    for (const auto& [rank, caller] : said->callers) latest = std::max(latest, caller.deadline);
    Node node{.peer = from,
              .said = std::move(*said),
              .expires = on_grid(std::min(latest, parts_.now() + kUnheard))};
    if (is_doubtful(unique_id, node)) node.doubt = on_grid(parts_.now() + kDoubt);
    parts_.arm(std::min(node.expires, node.doubt));
    at = meetings_.find(unique_id);
    if (at != meetings_.end()) {
      if (const std::optional<Error> why = duplicate(at->second, node)) {
        refuse(from, node.said, *why);
        return reply;
      }
      if (const std::optional<Error> why = conflict(at->second, node)) {
        refuse(from, node.said, *why);
        fail(at, from.instance, *why);
        return reply;
      }
    } else {
      at = meetings_.emplace(unique_id, Meeting{.uid = node.said.uid, .nodes = {}}).first;
      ++of_user_[node.said.uid];
    }
    add(at->second, std::move(node));
    std::size_t called = 0;
    for (const auto& [peer, one] : at->second.nodes) called += one.said.callers.size();
    if (called == static_cast<std::size_t>(request.ranks())) {
      form(at);
      return reply;
    }
  }
  Rank culprit = kNoRank;
  reply.set_missing(missing(unique_id, culprit));
  reply.set_culprit(culprit);
  return reply;
}

bool RootMeetings::is_news(const PeerNode& from, const Announcement& said) {
  const Said key{said.unique_id, from.instance};
  const auto [last, is_new] = last_versions_.try_emplace(key, 0);
  if (is_new) {
    by_age_.push_back(key);
    if (by_age_.size() > kVersionsKept) {
      last_versions_.erase(by_age_.front());
      by_age_.pop_front();
    }
  }
  if (said.version <= last->second) return false;
  last->second = said.version;
  return true;
}

Status RootMeetings::admit(const PeerNode& from, const Announcement& said) const {
  const auto at = meetings_.find(said.unique_id);
  const auto before = remembered_.find(said.unique_id, parts_.now());
  if ((at != meetings_.end() && at->second.uid != said.uid) ||
      (before && before->uid != said.uid)) {
    return error(ErrorCode::PermissionDenied, Reason::Permission, "uid ", said.uid, " on node ",
                 from.to_string(), " may not join a communicator of another user");
  }
  const auto count = [](const auto& counts, auto key) {
    const auto found = counts.find(key);
    return found == counts.end() ? std::size_t{0} : found->second;
  };
  if (count(of_peer_, from.instance) >= kMostOfPeer) {
    return error(ErrorCode::ResourceExhausted, Reason::Quota, "ranks of node ", from.to_string(),
                 " wait in ", kMostOfPeer, " communicators for others at node ",
                 parts_.peers.self().to_string(), ", which is the most");
  }
  if (at == meetings_.end() && count(of_user_, said.uid) >= kMostOfUser) {
    return error(ErrorCode::ResourceExhausted, Reason::Quota, kMostOfUser, " communicators of uid ",
                 said.uid, " wait for ranks at node ", parts_.peers.self().to_string(),
                 ", which is the most");
  }
  return {};
}

std::optional<Error> RootMeetings::duplicate(const Meeting& meeting, const Node& newcomer) const {
  for (const auto& [peer, node] : meeting.nodes) {
    for (const auto& [rank, caller] : newcomer.said.callers) {
      if (!node.said.callers.contains(rank)) continue;
      return with_culprit(
          error(ErrorCode::AlreadyExists, Reason::BadValue, "rank ", rank,
                " of this communicator has already called on node ", node.peer.to_string(),
                ": give every rank its own number, or use a new unique id"),
          rank);
    }
  }
  return std::nullopt;
}

std::optional<Error> RootMeetings::conflict(const Meeting& meeting, const Node& newcomer) const {
  const Announcement& mine = newcomer.said;
  const Rank rank = mine.callers.begin()->first;
  for (const auto& [peer, node] : meeting.nodes) {
    const Announcement& other = node.said;
    const Rank first = other.callers.begin()->first;
    if (other.ranks != mine.ranks) {
      return with_culprit(error(ErrorCode::InvalidArgument, Reason::Mismatch,
                                "the ranks disagree about their number: rank ", first, " on node ",
                                node.peer.to_string(), " says ", other.ranks, " and rank ", rank,
                                " on node ", newcomer.peer.to_string(), " says ", mine.ranks),
                          rank);
    }
    if (other.worker != mine.worker) {
      return with_culprit(
          error(ErrorCode::Unimplemented, Reason::Unsupported, "rank ", first, " is on ",
                other.worker, " of node ", node.peer.to_string(), " and rank ", rank, " on ",
                mine.worker, " of node ", newcomer.peer.to_string(),
                ": a communicator's ranks are all on GPUs or all on the host"),
          rank);
    }
    if (other.default_coding != mine.default_coding) {
      return with_culprit(error(ErrorCode::InvalidArgument, Reason::Mismatch,
                                "the ranks disagree about their default codec: rank ", first,
                                " on node ", node.peer.to_string(), " says ",
                                to_string(other.default_coding), " and rank ", rank, " on node ",
                                newcomer.peer.to_string(), " says ", to_string(mine.default_coding),
                                ": give all ranks the same arcCommConfig_t.all_reduce"),
                          rank);
    }
  }
  return std::nullopt;
}

std::string RootMeetings::missing(const UniqueIdBytes& unique_id, Rank& culprit) const {
  const auto at = meetings_.find(unique_id);
  if (at == meetings_.end()) return {};
  const int ranks = at->second.nodes.begin()->second.said.ranks;
  std::set<Rank> absent;
  for (Rank rank = 0; rank < ranks; ++rank) absent.insert(rank);
  std::ostringstream called;
  std::set<std::string> heard;
  for (const auto& [peer, node] : at->second.nodes) {
    const std::vector<Rank> here = ranks_of(node.said);
    for (const Rank rank : here) absent.erase(rank);
    called << "; node " << node.peer.to_string() << " has called " << list_of(here);
    heard.insert(node.peer.address);
  }
  culprit = *absent.begin();
  int silent = 0;
  for (const std::string& address : parts_.peers.addresses()) {
    if (heard.contains(address) || parts_.peers.find(address).instance != 0) continue;
    if (++silent <= kSilentNamed) called << "; node " << address << " is not reachable";
  }
  std::string text = called.str();
  if (silent > kSilentNamed) text += ", and " + std::to_string(silent - kSilentNamed) + " more";
  return list_of(absent) + " of " + std::to_string(ranks) +
         (absent.size() == 1 ? " has" : " have") + " not called: " + text.substr(2);
}

bool RootMeetings::is_doubtful(const UniqueIdBytes& unique_id, const Node& node) const {
  const std::vector<Rank> ranks = ranks_of(node.said);
  if (held_.knows(unique_id)) return held_.find(unique_id, node.peer.instance, ranks).has_value();
  return node.peer.instance != parts_.peers.self().instance &&
         std::ranges::any_of(
             ranks, [&](Rank rank) { return parts_.is_live_here(unique_id, node.said.uid, rank); });
}

// The node that holds the rank is asked by one more Commit, which it takes only while the
// communicator is there.
void RootMeetings::find_out(const UniqueIdBytes& unique_id, PeerId caller) {
  const auto at = meetings_.find(unique_id);
  if (at == meetings_.end()) return;
  const auto found = at->second.nodes.find(caller);
  if (found == at->second.nodes.end() || !is_doubtful(unique_id, found->second)) return;
  const std::vector<Rank> ranks = ranks_of(found->second.said);
  const std::optional<HeldRanks::Holder> holder = held_.find(unique_id, caller, ranks);
  if (!holder) {
    const auto rank = std::ranges::find_if(
        ranks, [&](Rank one) { return parts_.is_live_here(unique_id, at->second.uid, one); });
    return refuse_rank_in_use(unique_id, caller, *rank, parts_.peers.self());
  }
  v1::CommitRequest request;
  write_unique_id(unique_id, *request.mutable_unique_id());
  request.set_epoch(holder->epoch);
  request.set_communicator(holder->communicator);
  parts_.peers.commit(holder->peer, std::move(request), parts_.now() + kTellIn,
                      [this, unique_id, caller, holder](const Result<v1::PeerEmpty>& reply) {
                        if (reply)
                          return refuse_rank_in_use(unique_id, caller, holder->rank, holder->peer);
                        if (reply.error().code == ErrorCode::FailedPrecondition)
                          held_.forget(unique_id, holder->communicator);
                      });
}

void RootMeetings::refuse_rank_in_use(const UniqueIdBytes& unique_id, PeerId caller, Rank rank,
                                      const PeerNode& holder) {
  const auto at = meetings_.find(unique_id);
  if (at == meetings_.end()) return;
  const auto found = at->second.nodes.find(caller);
  if (found == at->second.nodes.end() || !found->second.said.callers.contains(rank)) return;
  const Node node = found->second;
  remove(at, caller);
  refuse(node.peer, node.said,
         with_culprit(error(ErrorCode::AlreadyExists, Reason::BadValue, "rank ", rank,
                            " of this communicator is in use on node ", holder.to_string(),
                            ", and node ", node.peer.to_string(),
                            " calls for it, too: give every rank its own number, or use a new "
                            "unique id"),
                      rank));
}

void RootMeetings::refuse(const PeerNode& peer, const Announcement& said, const Error& why) {
  v1::AbandonRequest request;
  write_unique_id(said.unique_id, *request.mutable_unique_id());
  request.set_version(said.version);
  request.set_code(static_cast<std::uint32_t>(why.code));
  request.set_reason(static_cast<std::uint32_t>(why.reason));
  request.set_culprit(why.rank);
  request.set_why(why.message);
  parts_.peers.abandon(peer, std::move(request), parts_.now() + kTellIn,
                       [](const Result<v1::PeerEmpty>&) {});
}

void RootMeetings::fail(Meetings::iterator at, PeerId but, const Error& why) {
  const std::map<PeerId, Node> nodes = at->second.nodes;
  erase(at);
  for (const auto& [peer, node] : nodes) {
    if (peer != but) refuse(node.peer, node.said, why);
  }
}

void RootMeetings::add(Meeting& meeting, Node node) {
  ++of_peer_[node.peer.instance];
  const PeerId peer = node.peer.instance;
  meeting.nodes.emplace(peer, std::move(node));
}

void RootMeetings::remove(Meetings::iterator at, PeerId peer) {
  if (at->second.nodes.erase(peer) == 0) return;
  if (const auto count = of_peer_.find(peer); --count->second == 0) of_peer_.erase(count);
  if (at->second.nodes.empty()) erase(at);
}

void RootMeetings::erase(Meetings::iterator at) {
  for (const auto& [peer, node] : at->second.nodes) {
    if (const auto count = of_peer_.find(peer); --count->second == 0) of_peer_.erase(count);
  }
  if (const auto count = of_user_.find(at->second.uid); --count->second == 0) of_user_.erase(count);
  meetings_.erase(at);
}

void RootMeetings::form(Meetings::iterator at) {
  const UniqueIdBytes unique_id = at->first;
  const Meeting meeting = at->second;
  erase(at);
  const auto before = remembered_.find(unique_id, parts_.now());
  FormAttempts::Plan plan{.unique_id = unique_id, .epoch = before ? before->number : 0};
  for (const auto& [peer, node] : meeting.nodes) {
    plan.epoch = std::max(plan.epoch, node.said.remembered_epoch);
    plan.members.push_back({.peer = node.peer, .ranks = ranks_of(node.said)});
    const std::uint64_t limit = node.said.segment_limit_bytes;
    plan.segment_limit_bytes =
        plan.segment_limit_bytes == 0 ? limit : std::min(plan.segment_limit_bytes, limit);
    for (const auto& [rank, caller] : node.said.callers) {
      plan.deadline = std::min(plan.deadline, caller.deadline);
      plan.devices.emplace(rank, caller.device);
    }
  }
  ++plan.epoch;
  remembered_.remember(unique_id, {.uid = meeting.uid, .number = plan.epoch}, parts_.now());
  std::ranges::sort(plan.members, {}, [](const auto& member) { return member.ranks.front(); });
  const auto without_codecs = std::ranges::find_if(plan.members, [&meeting](const auto& member) {
    return !meeting.nodes.at(member.peer.instance).said.gpu_codecs;
  });
  if (without_codecs != plan.members.end())
    plan.no_gpu_codecs_on = without_codecs->peer.to_string();
  const bool is_of_one_rule = std::ranges::all_of(meeting.nodes, [](const auto& node) {
    return node.second.said.coding_rules == kCodingRules;
  });
  if (!is_of_one_rule) plan.coding_rules = 0;
  attempts_.begin(plan);
}

void RootMeetings::holds(const UniqueIdBytes& unique_id, const HeldRanks::Held& held) {
  held_.hold(unique_id, held);
  // What its nodes announced before they formed it came late.
  for (const HeldRanks::Member& member : held.members) {
    const auto at = meetings_.find(unique_id);
    if (at == meetings_.end()) return;
    remove(at, member.peer.instance);
  }
}

void RootMeetings::peer_lost(const PeerNode& peer, const Error& why) {
  held_.forget(peer.instance);
  std::vector<UniqueIdBytes> lost;
  for (const auto& [unique_id, meeting] : meetings_) {
    if (meeting.nodes.contains(peer.instance)) lost.push_back(unique_id);
  }
  for (const UniqueIdBytes& unique_id : lost) {
    const auto at = meetings_.find(unique_id);
    if (at == meetings_.end()) continue;
    const std::vector<Rank> ranks = ranks_of(at->second.nodes.at(peer.instance).said);
    fail(at, peer.instance,
         with_culprit(
             error(ErrorCode::Aborted, Reason::RemoteDied, list_of(ranks), " had called on node ",
                   peer.to_string(), ", which is lost: ", why.message),
             ranks.front()));
  }
  attempts_.peer_lost(peer, why);
}

void RootMeetings::tick() {
  const Clock::time_point now = parts_.now();
  std::vector<std::pair<UniqueIdBytes, PeerId>> expired, doubtful;
  for (auto& [unique_id, meeting] : meetings_) {
    for (auto& [peer, node] : meeting.nodes) {
      if (node.expires <= now) expired.emplace_back(unique_id, peer);
      if (node.doubt > now) continue;
      node.doubt = Clock::time_point::max();
      doubtful.emplace_back(unique_id, peer);
    }
  }
  for (const auto& [unique_id, peer] : doubtful) find_out(unique_id, peer);
  for (const auto& [unique_id, peer] : expired) {
    if (const auto at = meetings_.find(unique_id); at != meetings_.end()) remove(at, peer);
  }
  attempts_.tick();
}

std::optional<RootMeetings::Clock::time_point> RootMeetings::next_tick() const {
  Clock::time_point next = Clock::time_point::max();
  for (const auto& [unique_id, meeting] : meetings_) {
    for (const auto& [peer, node] : meeting.nodes)
      next = std::min({next, node.expires, node.doubt});
  }
  if (const auto again = attempts_.next_tick()) next = std::min(next, *again);
  if (next == Clock::time_point::max()) return std::nullopt;
  return next;
}

}  // namespace arcomm
