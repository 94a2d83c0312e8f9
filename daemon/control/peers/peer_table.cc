#include "daemon/control/peers/peer_table.h"

#include <algorithm>
#include <utility>

#include "daemon/telemetry/log/log.h"

namespace arcomm {
namespace {

// Which of the addresses is this daemon's own: those that do not answer by then are not.
constexpr std::chrono::milliseconds kSettleLimit{1000};

}  // namespace

PeerTable::PeerTable(Parts parts)
    : parts_(std::move(parts)),
      self_{.address = {}, .name = parts_.name, .instance = parts_.instance},
      addresses_(parts_.configured) {
  std::sort(addresses_.begin(), addresses_.end());
}

void PeerTable::start() {
  for (const std::string& address : parts_.configured) add(address, true);
  if (!parts_.own_address.empty()) return settle(parts_.own_address);
  if (peers_.empty()) return settle(parts_.fallback_address);
  parts_.loop.after(kSettleLimit, [this] {
    if (!is_settled_) settle(parts_.fallback_address);
  });
  for (const auto& [address, peer] : peers_) peer->attempt_now();
}

Peer& PeerTable::add(const std::string& address, bool is_configured) {
  auto peer = std::make_unique<Peer>(Peer::Parts{.loop = parts_.loop,
                                                 .metrics = parts_.metrics,
                                                 .client = parts_.client,
                                                 .token = parts_.token,
                                                 .owner = *this,
                                                 .timeout = parts_.timeout},
                                     address, is_configured);
  return *peers_.emplace(address, std::move(peer)).first->second;
}

void PeerTable::settle(const std::string& address) {
  self_.address = address;
  is_settled_ = true;
  if (std::find(addresses_.begin(), addresses_.end(), address) == addresses_.end()) {
    addresses_.push_back(address);
    std::sort(addresses_.begin(), addresses_.end());
    if (!parts_.configured.empty())
      log::warn("net.peers does not name this daemon: the others are told that it is {}", address);
  }
  if (Peer* const own = find_peer(address); own != nullptr) own->use_self();
  log::info("this daemon is {}, instance {:016x}", self_.to_string(), self_.instance);
  for (const auto& [other, peer] : peers_) peer->attempt_now();
}

void PeerTable::heard_of(Peer&) {}  // it is greeted again once this daemon is settled

void PeerTable::found_self(Peer& peer) {
  if (!is_settled_) return settle(peer.address());
  // Another name for it.
  peer.use_self();
}

void PeerTable::lost(const PeerNode& was, const Error& why) {
  parts_.lost(was, why);
  if (handler_ != nullptr) handler_->peer_lost(was, why);
}

std::uint64_t PeerTable::losses_of(const PeerNode& node) const {
  const auto found = peers_.find(node.address);
  return found == peers_.end() ? 0 : found->second->losses();
}

void PeerTable::introduced(const PeerNode& node, std::uint64_t losses) {
  if (node.instance == self_.instance) return;
  if (Peer* const known = find_peer(node.address); known != nullptr)
    return known->introduced(node, losses);
  if (peers_.size() >= kMostPeers) {
    log::warn("{} is not taken up: there are {} peers", node.to_string(), peers_.size());
    return;
  }
  add(node.address, false).introduced(node, losses);
}

void PeerTable::left(const PeerNode& node) {
  if (Peer* const known = find_peer(node.address); known != nullptr) known->left(node.instance);
}

void PeerTable::leave(Clock::time_point deadline, const std::function<void()>& told) {
  auto left = std::make_shared<std::size_t>(peers_.size());
  if (peers_.empty()) {
    parts_.loop.post(told);
    return;
  }
  for (const auto& [address, peer] : peers_) {
    peer->leave(deadline, [left, told] {
      if (--*left == 0) told();
    });
  }
}

Peer* PeerTable::find_peer(const std::string& address) {
  const auto found = peers_.find(address);
  return found == peers_.end() ? nullptr : found->second.get();
}

bool PeerTable::is_alive(const PeerNode& node) const {
  const PeerNode there = find(node.address);
  return there.instance != 0 && there.instance == node.instance;
}

std::size_t PeerTable::alive() const {
  return static_cast<std::size_t>(std::count_if(peers_.begin(), peers_.end(), [](const auto& one) {
    return one.second->state() == Peer::State::Alive;
  }));
}

bool PeerTable::has_peers() const {
  return std::any_of(peers_.begin(), peers_.end(),
                     [](const auto& one) { return one.second->state() != Peer::State::Self; });
}

PeerNode PeerTable::find(const std::string& address) const {
  if (address == self_.address && is_settled_) return self_;
  const auto found = peers_.find(address);
  if (found == peers_.end() || found->second->state() != Peer::State::Alive)
    return {.address = address, .name = {}, .instance = 0};
  return found->second->node();
}

template <typename Request, typename Reply>
void PeerTable::send(void (PeerHandler::*handle)(const PeerNode&, const Request&, Answer<Reply>),
                     std::unique_ptr<grpc::ClientAsyncResponseReader<Reply>> (
                         PeerClient::Stub::*method)(grpc::ClientContext*, const Request&,
                                                    grpc::CompletionQueue*),
                     const PeerNode& to, Request request, Clock::time_point deadline, bool again,
                     Done<Reply> done) {
  if (is_settled_ && to.address == self_.address) {
    parts_.loop.post([this, handle, request = std::move(request), done = std::move(done)] {
      if (handler_ == nullptr) {
        return done(error(ErrorCode::Unavailable, Reason::ShuttingDown,
                          "this daemon forms no communicators with others now"));
      }
      // Later, and once: as from any other daemon.
      (handler_->*handle)(self_, request,
                          [this, done, once = std::make_shared<bool>(false)](Result<Reply> reply) {
                            parts_.loop.post([done, once, reply = std::move(reply)] {
                              if (!std::exchange(*once, true)) done(reply);
                            });
                          });
    });
    return;
  }
  Peer* const peer = find_peer(to.address);
  if (peer == nullptr) {
    parts_.loop.post([done = std::move(done), address = to.address] {
      done(error(ErrorCode::NotFound, Reason::None, "no daemon is known at ", address,
                 ": name it in net.peers of all nodes"));
    });
    return;
  }
  peer->send(method, std::move(request), to.instance, deadline, again, std::move(done));
}

void PeerTable::announce(const std::string& address, v1::AnnounceRequest request,
                         Clock::time_point deadline, Done<v1::AnnounceReply> done) {
  send(&PeerHandler::announced, &PeerClient::Stub::PrepareAsyncAnnounce,
       PeerNode{.address = address, .name = {}, .instance = 0}, std::move(request), deadline, true,
       std::move(done));
}

void PeerTable::form(const PeerNode& peer, v1::FormRequest request, Clock::time_point deadline,
                     Done<v1::FormReply> done) {
  send(&PeerHandler::form, &PeerClient::Stub::PrepareAsyncForm, peer, std::move(request), deadline,
       false, std::move(done));
}

void PeerTable::commit(const PeerNode& peer, v1::CommitRequest request, Clock::time_point deadline,
                       Done<v1::PeerEmpty> done) {
  send(&PeerHandler::commit, &PeerClient::Stub::PrepareAsyncCommit, peer, std::move(request),
       deadline, false, std::move(done));
}

void PeerTable::abandon(const PeerNode& peer, v1::AbandonRequest request,
                        Clock::time_point deadline, Done<v1::PeerEmpty> done) {
  send(&PeerHandler::abandon, &PeerClient::Stub::PrepareAsyncAbandon, peer, std::move(request),
       deadline, false, std::move(done));
}

}  // namespace arcomm
