// This node's part in communicators whose ranks are on several nodes. Calls that wait in the
// rendezvous for ranks that are not here are announced to the daemon where they meet
// (meeting_place.h), after a moment in which the rest may come here; what changes is announced
// anew, and what does not is repeated, so that a root that restarts hears of it, and says who is
// missing before a deadline passes. Form from the root has the rendezvous build this node's part
// over links to the other nodes; Commit or Abandon ends the attempt. A root that is lost is said to
// whoever waited for it.
//
// Thread: the control loop. Knows no socket: messages go through PeerMessenger, time comes from
// `now`, and tick() is due at next_tick().
#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <optional>
#include <string>

#include "daemon/control/peers/link_maker.h"
#include "daemon/control/peers/meetings/meeting_messages.h"
#include "daemon/control/peers/peer_messenger.h"
#include "daemon/control/rendezvous/rendezvous.h"

namespace arcomm {

class NodeMeetings {
 public:
  using Clock = MeetingClock;
  struct Parts {
    Rendezvous& rendezvous;
    PeerMessenger& peers;
    LinkMaker& links;
    std::function<std::string(std::size_t worker)> name_of_worker;  // "host:0"
    std::function<bool()> allows_gpu_codecs;                        // of the settings now
    std::function<Clock::time_point()> now = [] { return Clock::now(); };
    // next_tick() is no later than this from now on.
    std::function<void(Clock::time_point)> arm = [](Clock::time_point) {};
  };
  // Watches the rendezvous from now on.
  explicit NodeMeetings(Parts parts);

  // From the root.
  void form(const PeerNode& root, const v1::FormRequest& request, Answer<v1::FormReply> answer);
  Status commit(const PeerNode& root, const v1::CommitRequest& request);
  Status abandon(const PeerNode& root, const v1::AbandonRequest& request);
  void peer_lost(const PeerNode& peer, const Error& why);

  void tick();
  std::optional<Clock::time_point> next_tick() const;
  std::size_t size() const { return meetings_.size(); }

 private:
  struct Meeting {
    std::string root;                 // where it was announced
    std::uint64_t first_version = 0;  // of the announcements since the calls began; 0: none yet
    std::uint64_t last_version = 0;
    PeerId heard_from = 0;           // the root, once it has answered one
    bool is_under_way = false;       // the last one is not answered yet
    bool is_outdated = false;        // by calls that came or went meanwhile
    std::uint64_t communicator = 0;  // being formed, or formed and not committed; 0: none is
    PeerNode forming_root;           // of that
    Clock::time_point next = Clock::time_point::max();  // announcement
  };
  using Meetings = std::map<UniqueIdBytes, Meeting>;

  void changed(const UniqueIdBytes& unique_id);
  void failed(const UniqueIdBytes& unique_id, const Error& why);
  void announce(Meetings::iterator at);
  void announced(const UniqueIdBytes& unique_id, std::uint64_t version,
                 const Result<v1::AnnounceReply>& reply);
  // The calls have gone from here, with `why` or in peace.
  void withdraw(Meetings::iterator at, const Error* why);
  void link(const PlannedCommunicator& plan, const std::string& worker,
            std::function<void(const Status&)> done);
  bool meets_at(const Meeting& meeting, const PeerNode& peer) const;
  bool is_abandoned(std::uint64_t communicator) const;

  Parts parts_;
  Meetings meetings_;
  std::uint64_t versions_ = 0;
  std::deque<std::uint64_t> abandoned_;  // communicators, the last ones: Form may come after
};

}  // namespace arcomm
