#include "daemon/control/peers/peer.h"

#include <algorithm>

#include "daemon/telemetry/log/log.h"
#include "daemon/telemetry/metrics/metrics.h"

namespace arcomm {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kFirstPause{100}, kLongestPause{1000}, kPauseOfRefused{2000};
constexpr milliseconds kLongestGreeting{3000};

bool is_of_the_way(const Error& why) {
  return why.reason == Reason::NotRunning || why.reason == Reason::Timeout;
}

}  // namespace

Peer::Peer(Parts parts, std::string address, bool is_configured)
    : parts_(parts),
      address_(std::move(address)),
      is_configured_(is_configured),
      node_{.address = address_, .name = {}, .instance = 0},
      why_(error(ErrorCode::Unavailable, Reason::None, "it has not been heard of yet")) {
  hang_up();
}

Peer::~Peer() = default;

std::chrono::nanoseconds Peer::period() const {
  return std::clamp<std::chrono::nanoseconds>(parts_.timeout / 5, milliseconds(20),
                                              milliseconds(1000));
}

void Peer::hang_up() {
  line_ = std::make_unique<PeerClient::Line>(parts_.client, address_);
  ++line_number_;
  is_asking_ = false;
}

void Peer::enter(State state) {
  const auto gauge = [this](State of) -> Gauge* {
    if (of == State::Alive) return &parts_.metrics.peers_alive;
    if (of == State::Unreachable) return &parts_.metrics.peers_unreachable;
    return of == State::Refused ? &parts_.metrics.peers_refused : nullptr;
  };
  if (Gauge* const before = gauge(state_); before != nullptr) before->add(-1);
  if (Gauge* const now = gauge(state); now != nullptr) now->add(1);
  state_ = state;
}

void Peer::use_self() {
  enter(State::Self);
  node_ = parts_.owner.self();
  parts_.loop.cancel(next_);
  fail_waiting(error(ErrorCode::Unavailable, Reason::None, address_, " is this daemon itself"));
}

void Peer::attempt_now() {
  if (is_asking_ || is_over_ || state_ == State::Self) return;
  parts_.loop.cancel(next_);
  attempt();
}

void Peer::attempt() {
  if (pass_.empty()) return greet();
  beat();
}

void Peer::attempt_after(std::chrono::nanoseconds pause) {
  if (is_over_ || state_ == State::Self) return;
  parts_.loop.cancel(next_);
  next_ = parts_.loop.after(pause, [this] {
    if (!is_asking_) attempt();
  });
}

void Peer::left(PeerId instance) {
  if (state_ != State::Alive || instance != node_.instance) return;
  lose(error(ErrorCode::Unavailable, Reason::RemoteDied, node_.to_string(),
             " stops: it was shut down in good order"));
  // It answers still, but that it stops; another run of it greets us.
  pause_ = kLongestPause;
  attempt_after(pause_);
}

void Peer::leave(Clock::time_point deadline, std::function<void()> told) {
  parts_.loop.cancel(next_);
  is_over_ = true;
  if (state_ != State::Alive || pass_.empty()) {
    parts_.loop.post(std::move(told));
    return;
  }
  v1::LeaveRequest request;
  request.mutable_pass()->set_instance(parts_.owner.self().instance);
  request.mutable_pass()->set_pass(pass_);
  line_->call<v1::LeaveRequest, v1::PeerEmpty>(
      &PeerClient::Stub::PrepareAsyncLeave, request, deadline,
      [told = std::move(told)](const Result<v1::PeerEmpty>&) { told(); });
}

void Peer::introduced(const PeerNode& as, std::uint64_t losses) {
  if (is_over_ || state_ == State::Self) return;
  const bool is_known = state_ == State::Alive && as.instance == node_.instance;
  const bool took_us_for_dead = losses > std::exchange(losses_there_, losses);
  if (is_known && !took_us_for_dead) return;
  if (is_known)
    lose(error(ErrorCode::Unavailable, Reason::RemoteDied, node_.to_string(),
               " had not heard of this daemon for net.peer_timeout_ms and took it for dead"));
  pass_.clear();
  pause_ = {};
  attempt_now();
}

void Peer::greet() {
  Result<std::string> challenge = random_secret();
  if (!challenge) return failed(challenge.error());
  Greeting greeting{.challenge_of_client = *challenge,
                    .challenge_of_server = {},
                    .client = identity_of(parts_.owner.self()),
                    .server = {}};
  v1::GreetRequest request;
  *request.mutable_from() = greeting.client;
  request.set_challenge(*std::move(challenge));
  is_asking_ = true;
  const auto by = Clock::now() + std::min<milliseconds>(parts_.timeout, kLongestGreeting);
  line_->call<v1::GreetRequest, v1::GreetReply>(
      &PeerClient::Stub::PrepareAsyncGreet, request, by,
      [this, line = line_number_, greeting](Result<v1::GreetReply> reply) {
        if (line != line_number_) return;
        is_asking_ = false;
        if (state_ == State::Self) return;
        if (reply) return greeted(greeting, *reply);
        const Reason reason = reply.error().reason;
        if (reason == Reason::Version || reason == Reason::Permission)
          return refused(reply.error());
        failed(reply.error());
      });
}

void Peer::greeted(const Greeting& said, const v1::GreetReply& reply) {
  Greeting greeting = said;
  greeting.challenge_of_server = reply.challenge();
  greeting.server = reply.from();
  const bool knows_token = equal_secrets(reply.proof(), proof_of_server(parts_.token, greeting));
  // The instance alone is no secret: all are told it who are greeted.
  if (knows_token && reply.from().instance() == parts_.owner.self().instance)
    return parts_.owner.found_self(*this);
  Result<PeerNode> node = node_of(reply.from());
  if (!node) return refused(node.error());
  node->address = address_;  // as it is called here
  if (!parts_.owner.is_settled()) return parts_.owner.heard_of(*this);
  if (knows_token) return prove(greeting, *node);
  // It is not shown our proof, and hears that its own was wrong.
  v1::ProveRequest request;
  request.set_instance(parts_.owner.self().instance);
  line_->call<v1::ProveRequest, v1::ProveReply>(&PeerClient::Stub::PrepareAsyncProve, request,
                                                Clock::now() + kLongestGreeting,
                                                [](const Result<v1::ProveReply>&) {});
  refused(other_token(*node));
}

void Peer::prove(const Greeting& greeting, const PeerNode& node) {
  v1::ProveRequest request;
  request.set_instance(parts_.owner.self().instance);
  request.set_proof(proof_of_client(parts_.token, greeting));
  request.set_losses(losses_);
  is_asking_ = true;
  const auto by = Clock::now() + std::min<milliseconds>(parts_.timeout, kLongestGreeting);
  line_->call<v1::ProveRequest, v1::ProveReply>(
      &PeerClient::Stub::PrepareAsyncProve, request, by,
      [this, line = line_number_, node](Result<v1::ProveReply> reply) {
        if (line != line_number_) return;
        is_asking_ = false;
        if (reply) {
          losses_there_ = reply->losses();
          return become_alive(node, reply->pass());
        }
        if (reply.error().code == ErrorCode::PermissionDenied) return refused(reply.error());
        failed(reply.error());
      });
}

void Peer::beat() {
  v1::BeatRequest request;
  request.mutable_pass()->set_instance(parts_.owner.self().instance);
  request.mutable_pass()->set_pass(pass_);
  is_asking_ = true;
  const Clock::time_point asked = Clock::now();
  const auto by = std::max<Clock::time_point>(heard_at_ + parts_.timeout, asked + period());
  line_->call<v1::BeatRequest, v1::BeatReply>(
      &PeerClient::Stub::PrepareAsyncBeat, request, by,
      [this, line = line_number_, asked](Result<v1::BeatReply> reply) {
        if (line != line_number_) return;
        is_asking_ = false;
        if (!reply && reply.error().code == ErrorCode::Unauthenticated) {
          // Another run, or another connection: who it is shows when it is greeted.
          pass_.clear();
          return attempt();
        }
        if (!reply) return failed(reply.error());
        heard_at_ = Clock::now();
        const std::chrono::nanoseconds took = heard_at_ - asked;
        round_trip_ = round_trip_.count() == 0 ? took : (7 * round_trip_ + took) / 8;
        pause_ = {};
        if (pass_.empty()) return attempt();  // meanwhile it was found out to be worth nothing
        attempt_after(period());
      });
}

void Peer::failed(const Error& why) {
  why_ = named(why);
  if (state_ == State::Alive) {
    const auto silent = Clock::now() - heard_at_;
    if (silent < parts_.timeout)
      return attempt_after(std::min<std::chrono::nanoseconds>(period(), parts_.timeout - silent));
    const auto ms = std::chrono::duration_cast<milliseconds>(silent).count();
    ++losses_;
    lose(error(ErrorCode::Unavailable, Reason::RemoteDied, node_.to_string(),
               " has not answered for ", ms, " ms (net.peer_timeout_ms): ", why.message));
  } else if (state_ != State::Unreachable) {
    if (parts_.owner.is_settled()) log::info("{}", why_.message);
    enter(State::Unreachable);
  }
  pause_ = std::clamp<std::chrono::nanoseconds>(2 * pause_, kFirstPause, kLongestPause);
  attempt_after(pause_);
}

void Peer::refused(const Error& why) {
  const bool is_news = state_ != State::Refused || why_.message != why.message;
  if (state_ == State::Alive) lose(why);
  enter(State::Refused);
  why_ = why;
  if (is_news) log::warn("peer {}: {}", address_, why_.message);
  fail_waiting(why_);
  attempt_after(kPauseOfRefused);
}

void Peer::become_alive(const PeerNode& node, std::string pass) {
  if (state_ == State::Alive && node_.instance != node.instance) {
    const Error why =
        error(ErrorCode::Unavailable, Reason::RemoteDied, node_.to_string(), " was started anew");
    const PeerNode was = node_;
    node_ = node;
    parts_.metrics.peers_lost.add();
    parts_.owner.lost(was, why);
  }
  const bool is_news = state_ != State::Alive || node_.instance != node.instance;
  node_ = node;
  pass_ = std::move(pass);
  enter(State::Alive);
  heard_at_ = Clock::now();
  pause_ = {};
  if (is_news) log::info("peer {} is alive, instance {:016x}", node_.to_string(), node_.instance);
  attempt_after(period());
  std::list<Sending> waiting = std::exchange(waiting_, {});
  for (Sending& one : waiting) {
    parts_.loop.cancel(one.timer);
    send(std::move(one));
  }
}

void Peer::lose(const Error& why) {
  log::warn("{}", why.message);
  enter(State::Unreachable);
  why_ = why;
  pass_.clear();
  hang_up();
  fail_waiting(why, node_.instance);
  parts_.metrics.peers_lost.add();
  parts_.owner.lost(node_, why);
}

void Peer::send(Sending sending) {
  if (state_ == State::Refused) return fail_later(sending, why_);
  // Who lives there now is known once it has been greeted: what comes from a daemon that was just
  // started comes before that.
  if (!pass_.empty() && state_ == State::Alive) {
    if (sending.instance == 0 || sending.instance == node_.instance) return sending.go(sending);
    return fail_later(sending, error(ErrorCode::Unavailable, Reason::RemoteDied, node_.to_string(),
                                     " was started anew"));
  }
  waiting_.push_back(std::move(sending));
  const auto at = std::prev(waiting_.end());
  at->timer = parts_.loop.at(at->deadline, [this, at] {
    const auto fail = std::move(at->fail);
    waiting_.erase(at);
    fail(error(ErrorCode::Unavailable, Reason::RemoteDied, node_.to_string(),
               " could not be reached in time: ", why_.message));
  });
  attempt_now();
}

bool Peer::is_to_be_sent_anew(const Error& why, const std::string& pass, bool again) {
  if (why.code == ErrorCode::Unauthenticated) {
    if (pass_ == pass) pass_.clear();
    return true;
  }
  if (!again || why.reason != Reason::NotRunning) return false;
  if (pass_ == pass) pass_.clear();  // it waits until the peer has been greeted anew
  return true;
}

Error Peer::named(Error why) const {
  if (is_of_the_way(why))
    why.message = "peer " + node_.to_string() + " cannot be reached: " + why.message;
  return why;
}

void Peer::fail_later(const Sending& sending, const Error& why) {
  parts_.loop.post([fail = sending.fail, why] { fail(why); });
}

void Peer::fail_waiting(const Error& why, PeerId only) {
  for (auto at = waiting_.begin(); at != waiting_.end();) {
    const auto one = at++;
    if (only != 0 && one->instance != only) continue;
    parts_.loop.cancel(one->timer);
    fail_later(*one, why);
    waiting_.erase(one);
  }
}

}  // namespace arcomm
