// One other daemon: greeted until it answers, then asked now and again whether it lives. What is
// sent to it waits until it has been greeted. Its owner keeps it for as long as the loop runs.
// Thread: the control loop.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <string>
#include <utility>

#include "daemon/control/peers/introduction/introduction.h"
#include "daemon/control/peers/peer_client.h"
#include "daemon/control/peers/peer_messenger.h"
#include "daemon/control/rpc/event_loop.h"

namespace arcomm {

class Metrics;

class Peer {
 public:
  using Clock = EventLoop::Clock;
  enum class State : std::uint8_t {
    Unknown,  // not heard of yet
    Alive,
    Unreachable,  // or dead
    Refused,      // it, or this daemon, does not take the other: token, version
    Self,
  };
  class Owner {
   public:
    virtual ~Owner() = default;
    virtual const PeerNode& self() const = 0;
    // Whether this daemon knows what it is called, and may tell others.
    virtual bool is_settled() const = 0;
    // Somebody answers there, and this is as far as it goes until it is.
    virtual void heard_of(Peer& peer) = 0;
    virtual void found_self(Peer& peer) = 0;
    // `was` has gone, be it that another instance follows at once.
    virtual void lost(const PeerNode& was, const Error& why) = 0;
  };
  struct Parts {
    EventLoop& loop;
    Metrics& metrics;
    PeerClient& client;
    const PeerToken& token;
    Owner& owner;
    std::chrono::milliseconds timeout;
  };

  Peer(Parts parts, std::string address, bool is_configured);
  ~Peer();

  const std::string& address() const { return address_; }
  // instance 0: never heard of. Of a dead one: who it was.
  const PeerNode& node() const { return node_; }
  State state() const { return state_; }
  bool is_configured() const { return is_configured_; }  // in net.peers
  const Error& why() const { return why_; }              // of Unreachable and Refused
  std::chrono::nanoseconds round_trip() const { return round_trip_; }
  std::chrono::nanoseconds silent_for() const { return Clock::now() - heard_at_; }

  // Asks at once, whenever it would have been asked next.
  void attempt_now();
  // It has greeted this daemon, and says how often it has taken it for dead.
  void introduced(const PeerNode& as, std::uint64_t losses);
  // How often this daemon has found it dead.
  std::uint64_t losses() const { return losses_; }
  // It has said that it stops.
  void left(PeerId instance);
  // This daemon stops: the peer, where it is alive, is told, and asked nothing any more. told:
  // once, later, when it knows or the deadline has passed.
  void leave(Clock::time_point deadline, std::function<void()> told);
  void use_self();  // the address is this daemon's own

  // As PeerMessenger's; `instance` 0: whoever lives there. `again`: may be sent anew when the way
  // there failed.
  template <typename Request, typename Reply>
  void send(std::unique_ptr<grpc::ClientAsyncResponseReader<Reply>> (PeerClient::Stub::*method)(
                grpc::ClientContext*, const Request&, grpc::CompletionQueue*),
            Request request, PeerId instance, Clock::time_point deadline, bool again,
            std::function<void(Result<Reply>)> done) {
    Sending sending{.instance = instance, .deadline = deadline, .go = {}, .fail = done};
    auto kept = std::make_shared<Request>(std::move(request));
    sending.go = [this, method, kept, deadline, again, done](const Sending& self) {
      kept->mutable_pass()->set_instance(parts_.owner.self().instance);
      kept->mutable_pass()->set_pass(pass_);
      line_->call<Request, Reply>(
          method, *kept, deadline, [this, self, again, done, pass = pass_](Result<Reply> result) {
            if (result || !is_to_be_sent_anew(result.error(), pass, again)) {
              if (!result) return done(named(std::move(result).error()));
              return done(std::move(result));
            }
            send(self);
          });
    };
    send(std::move(sending));
  }

 private:
  struct Sending {
    PeerId instance = 0;
    Clock::time_point deadline;
    std::function<void(const Sending&)> go;
    std::function<void(Error)> fail;
    EventLoop::TimerKey timer{};
  };

  void send(Sending sending);
  bool is_to_be_sent_anew(const Error& why, const std::string& pass, bool again);
  // With the peer's name, where the words are of the way to it.
  Error named(Error why) const;
  void fail_later(const Sending& sending, const Error& why);
  void fail_waiting(const Error& why, PeerId only = 0);  // what is for that run; 0: all

  void enter(State state);
  void attempt();
  void attempt_after(std::chrono::nanoseconds pause);
  void greet();
  void greeted(const Greeting& greeting, const v1::GreetReply& reply);
  void prove(const Greeting& greeting, const PeerNode& node);
  void beat();
  void failed(const Error& why);
  void refused(const Error& why);
  void become_alive(const PeerNode& node, std::string pass);
  void lose(const Error& why);
  void hang_up();  // a new line: what is under way on the old one fails
  std::chrono::nanoseconds period() const;

  Parts parts_;
  const std::string address_;
  const bool is_configured_;
  PeerNode node_;
  State state_ = State::Unknown;
  Error why_;
  std::string pass_;  // "": to be greeted
  std::unique_ptr<PeerClient::Line> line_;
  std::uint64_t line_number_ = 0;  // answers over an earlier one come too late
  bool is_asking_ = false;
  bool is_over_ = false;  // this daemon stops
  EventLoop::TimerKey next_{};
  std::uint64_t losses_ = 0, losses_there_ = 0;
  Clock::time_point heard_at_{};
  std::chrono::nanoseconds pause_{};
  std::chrono::nanoseconds round_trip_{};
  std::list<Sending> waiting_;
};

}  // namespace arcomm
