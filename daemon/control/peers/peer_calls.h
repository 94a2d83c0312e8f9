// What other daemons ask of this one: each call is checked for its pass and handed to whom it is
// for. Thread: the control loop.
#pragma once

#include <functional>

#include "daemon/control/peers/introduction/peer_passes.h"
#include "daemon/control/peers/peer_messenger.h"

namespace arcomm {

class PeerCalls {
 public:
  struct Parts {
    const PeerToken& token;
    std::function<const PeerNode&()> self;
    // A connection has shown the token, whose it is, and how often that one has taken this daemon
    // for dead. Returns how often this daemon has found it dead.
    std::function<std::uint64_t(ConnectionNumber, const PeerNode&, std::uint64_t)> proven;
    // A daemon that does not know it: told to people.
    std::function<void(const Error&)> refused;
    std::function<void(const PeerNode&)> left;  // it stops in good order
    // Of whom a pass is good.
    std::function<void(const PeerNode&, const v1::ConnectRequest&, Answer<v1::ConnectReply>)>
        connect;
    std::function<PeerHandler*()> handler;  // null: nobody hears of meetings
  };
  explicit PeerCalls(Parts parts) : parts_(std::move(parts)), passes_(parts_.token) {}

  // This daemon stops: whoever greets it is told so, and no pass is good any more.
  void begin_stop() { stops_ = true; }

  void ended(ConnectionNumber connection) { passes_.end(connection); }

  void greet(const Caller& caller, const v1::GreetRequest& request,
             const Answer<v1::GreetReply>& answer);
  void prove(const Caller& caller, const v1::ProveRequest& request,
             const Answer<v1::ProveReply>& answer);
  void beat(const Caller& caller, const v1::BeatRequest& request,
            const Answer<v1::BeatReply>& answer);
  void leave(const Caller& caller, const v1::LeaveRequest& request,
             const Answer<v1::PeerEmpty>& answer);
  void connect(const Caller& caller, const v1::ConnectRequest& request,
               Answer<v1::ConnectReply> answer);
  void announce(const Caller& caller, const v1::AnnounceRequest& request,
                Answer<v1::AnnounceReply> answer);
  void form(const Caller& caller, const v1::FormRequest& request, Answer<v1::FormReply> answer);
  void commit(const Caller& caller, const v1::CommitRequest& request, Answer<v1::PeerEmpty> answer);
  void abandon(const Caller& caller, const v1::AbandonRequest& request,
               Answer<v1::PeerEmpty> answer);

 private:
  // Who calls, and that there is somebody to hear it.
  template <typename Request>
  Result<PeerNode> admit(const Caller& caller, const Request& request) const;

  // Of the caller, as long as this daemon does not stop.
  Result<PeerNode> check(const Caller& caller, const v1::Pass& pass) const;

  Parts parts_;
  PeerPasses passes_;
  bool stops_ = false;
};

}  // namespace arcomm
