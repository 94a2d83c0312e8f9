// Meetings of which this daemon is the root: the announcements of all nodes are collected until
// every rank has called; then they are formed (form_attempts.h). The rules of rendezvous.h hold
// over nodes, and what goes wrong names rank and node. Nothing of a meeting outlives an attempt to
// form it but its epoch: whoever is to wait on announces itself anew.
//
// Thread: the control loop. Knows no socket: messages go through PeerMessenger, time comes from
// `now`, and tick() is due at next_tick().
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "daemon/control/peers/meetings/form_attempts.h"
#include "daemon/control/peers/meetings/held_ranks.h"
#include "daemon/control/peers/meetings/meeting_messages.h"
#include "daemon/control/peers/peer_messenger.h"
#include "daemon/control/rendezvous/remembered_epochs.h"

namespace arcomm {

class RootMeetings {
 public:
  using Clock = MeetingClock;
  static constexpr std::size_t kMostOfPeer = 4096;
  static constexpr std::size_t kMostOfUser = 1024;

  struct Parts {
    PeerMessenger& peers;
    std::function<NetworkPolicy()> policy;
    std::function<std::uint64_t()> random;  // never 0
    // Of a communicator that never left this node: whether it holds here with this rank.
    std::function<bool(const UniqueIdBytes&, uid_t, Rank)> is_live_here =
        [](const UniqueIdBytes&, uid_t, Rank) { return false; };
    std::function<Clock::time_point()> now = [] { return Clock::now(); };
    // next_tick() is no later than this from now on.
    std::function<void(Clock::time_point)> arm = [](Clock::time_point) {};
  };
  explicit RootMeetings(Parts parts);

  Result<v1::AnnounceReply> announced(const PeerNode& from, const v1::AnnounceRequest& request);
  void peer_lost(const PeerNode& peer, const Error& why);

  void tick();
  std::optional<Clock::time_point> next_tick() const;
  std::size_t size() const { return meetings_.size(); }      // that collect
  std::size_t attempts() const { return attempts_.size(); }  // that are under way

 private:
  struct Node {
    PeerNode peer;
    Announcement said;
    Clock::time_point expires;  // unless it is announced anew
    // When to find out whether one of its ranks is in use on another node.
    Clock::time_point doubt = Clock::time_point::max();
  };
  struct Meeting {
    uid_t uid = 0;
    std::map<PeerId, Node> nodes;  // none is without a caller
  };
  using Meetings = std::map<UniqueIdBytes, Meeting>;

  bool is_news(const PeerNode& from, const Announcement& said);
  Status admit(const PeerNode& from, const Announcement& said) const;
  // Why the ranks of this node do not go with those of another.
  std::optional<Error> conflict(const Meeting& meeting, const Node& newcomer) const;
  std::optional<Error> duplicate(const Meeting& meeting, const Node& newcomer) const;
  std::string missing(const UniqueIdBytes& unique_id, Rank& culprit) const;
  // Whether another node holds one of the ranks that this one calls for, as far as is known here.
  bool is_doubtful(const UniqueIdBytes& unique_id, const Node& node) const;
  void find_out(const UniqueIdBytes& unique_id, PeerId caller);
  void refuse_rank_in_use(const UniqueIdBytes& unique_id, PeerId caller, Rank rank,
                          const PeerNode& holder);
  void refuse(const PeerNode& peer, const Announcement& said, const Error& why);
  void fail(Meetings::iterator at, PeerId but, const Error& why);
  void erase(Meetings::iterator at);
  void remove(Meetings::iterator at, PeerId peer);  // one node of it
  void add(Meeting& meeting, Node node);

  void form(Meetings::iterator at);
  // All nodes have formed it.
  void holds(const UniqueIdBytes& unique_id, const HeldRanks::Held& held);

  Parts parts_;
  Meetings meetings_;
  FormAttempts attempts_;
  RememberedEpochs remembered_;  // of ids that were formed here
  HeldRanks held_;
  // The last announcement of an id by a node: what comes late says nothing any more. Bounded: the
  // oldest go.
  using Said = std::pair<UniqueIdBytes, PeerId>;
  std::map<Said, std::uint64_t> last_versions_;
  std::deque<Said> by_age_;
  std::map<uid_t, std::size_t> of_user_;
  std::map<PeerId, std::size_t> of_peer_;  // meetings in which it has ranks
};

}  // namespace arcomm
