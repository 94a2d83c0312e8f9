// How what spans daemons talks with other daemons, and what it hears from them: messages of
// proto/arcommd/v1/peer.proto, whatever carries them (the daemon: gRPC; tests: a function call).
// Thread: the control loop.
#pragma once

#include <chrono>
#include <functional>
#include <string>
#include <vector>

#include "daemon/control/access/caller.h"
#include "daemon/exec/specs.h"
#include "proto/arcommd/v1/peer.pb.h"
#include "proto/status.h"

namespace arcomm {

namespace v1 = arcommd::v1;

// A daemon, as others know it.
struct PeerNode {
  std::string address;  // "10.0.0.2:7400": as net.peers has it, or as it called itself
  std::string name;     // for people
  PeerId instance = 0;  // 0: not heard of yet

  std::string to_string() const { return name.empty() ? address : name + " (" + address + ")"; }
};

// What other daemons ask of this one. `from` has shown that it knows the token. Each call is
// answered once, on the control loop; an answer after its caller's deadline is dropped.
class PeerHandler {
 public:
  virtual ~PeerHandler() = default;

  virtual void announced(const PeerNode& from, const v1::AnnounceRequest& request,
                         Answer<v1::AnnounceReply> answer) = 0;
  virtual void form(const PeerNode& from, const v1::FormRequest& request,
                    Answer<v1::FormReply> answer) = 0;
  virtual void commit(const PeerNode& from, const v1::CommitRequest& request,
                      Answer<v1::PeerEmpty> answer) = 0;
  virtual void abandon(const PeerNode& from, const v1::AbandonRequest& request,
                       Answer<v1::PeerEmpty> answer) = 0;

  // This run of it is dead, restarted (then another instance follows), or shut down. The links to
  // it have been told to close.
  virtual void peer_lost(const PeerNode& peer, const Error& why) = 0;
};

class PeerMessenger {
 public:
  using Clock = std::chrono::steady_clock;
  // On the control loop, exactly once, never from inside of the call itself. An error of the
  // handler there comes back with its code, reason and words; what the way there does is
  // Unavailable or DeadlineExceeded, naming the peer.
  template <typename Reply>
  using Done = std::function<void(Result<Reply>)>;

  virtual ~PeerMessenger() = default;

  // Null: what comes is refused as Unavailable.
  virtual void use_handler(PeerHandler* handler) = 0;

  // Whether there are other daemons at all.
  virtual bool has_peers() const = 0;
  // This daemon. Its address may be settled only some milliseconds after the start, when names have
  // been looked up; "" until then.
  virtual const PeerNode& self() const = 0;
  // Of all daemons of net.peers, this one included, sorted: the same on all of them if their
  // settings are.
  virtual const std::vector<std::string>& addresses() const = 0;
  // Who is alive there now; instance 0: nobody that we know.
  virtual PeerNode find(const std::string& address) const = 0;

  // To the daemon of this address; the pass is filled in. This daemon's own address comes back to
  // its own handler. A peer that cannot be reached is waited for until the deadline, and the error
  // then says why; one that refuses us (token, version) fails the call at once, and so does one of
  // an address that is not known. Announce is sent again where the way there failed; the others are
  // sent once, and for one run of a daemon: they fail at once where `instance` is not the one that
  // lives there.
  virtual void announce(const std::string& address, v1::AnnounceRequest request,
                        Clock::time_point deadline, Done<v1::AnnounceReply> done) = 0;
  virtual void form(const PeerNode& peer, v1::FormRequest request, Clock::time_point deadline,
                    Done<v1::FormReply> done) = 0;
  virtual void commit(const PeerNode& peer, v1::CommitRequest request, Clock::time_point deadline,
                      Done<v1::PeerEmpty> done) = 0;
  virtual void abandon(const PeerNode& peer, v1::AbandonRequest request, Clock::time_point deadline,
                       Done<v1::PeerEmpty> done) = 0;
};

}  // namespace arcomm
