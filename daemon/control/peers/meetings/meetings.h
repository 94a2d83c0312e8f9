// Communicators whose ranks are on several nodes, on this daemon: its own part in them
// (NodeMeetings), those that meet here (RootMeetings), what other daemons say about either, and the
// one timer of both. Thread: the control loop.
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "daemon/control/peers/meetings/node_meetings.h"
#include "daemon/control/peers/meetings/root_meetings.h"
#include "daemon/control/rpc/event_loop.h"

namespace arcomm {

class Meetings final : public PeerHandler {
 public:
  struct Parts {
    EventLoop& loop;
    Rendezvous& rendezvous;  // watched from now on
    PeerMessenger& peers;    // which hands over what it hears, until this goes
    LinkMaker& links;
    std::function<std::string(std::size_t worker)> name_of_worker;
    // Of the settings now; of its gpu_codecs this node's word.
    std::function<NetworkPolicy()> policy;
  };
  explicit Meetings(Parts parts);
  ~Meetings() override;
  Meetings(const Meetings&) = delete;
  Meetings& operator=(const Meetings&) = delete;

  void announced(const PeerNode& from, const v1::AnnounceRequest& request,
                 Answer<v1::AnnounceReply> answer) override;
  void form(const PeerNode& from, const v1::FormRequest& request,
            Answer<v1::FormReply> answer) override;
  void commit(const PeerNode& from, const v1::CommitRequest& request,
              Answer<v1::PeerEmpty> answer) override;
  void abandon(const PeerNode& from, const v1::AbandonRequest& request,
               Answer<v1::PeerEmpty> answer) override;
  void peer_lost(const PeerNode& peer, const Error& why) override;

 private:
  void arm(EventLoop::Clock::time_point when);

  EventLoop& loop_;
  Rendezvous& rendezvous_;
  PeerMessenger& peers_;
  NodeMeetings here_;
  RootMeetings root_;
  std::optional<EventLoop::TimerKey> timer_;
};

}  // namespace arcomm
