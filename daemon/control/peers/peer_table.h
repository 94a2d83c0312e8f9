// All other daemons that this one knows: those of net.peers, and those that have greeted it and
// know the token. Finds this daemon itself among them. Thread: the control loop.
#pragma once

#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "daemon/control/peers/peer.h"
#include "daemon/control/peers/peer_messenger.h"

namespace arcomm {

class PeerTable final : public PeerMessenger, private Peer::Owner {
 public:
  static constexpr std::size_t kMostPeers = 1024;

  struct Parts {
    EventLoop& loop;
    Metrics& metrics;
    PeerClient& client;
    const PeerToken& token;
    std::vector<std::string> configured;  // net.peers
    std::string name;                     // of this node
    PeerId instance = 0;                  // of this run
    // What others call this daemon: "" where only an answer from there can tell.
    std::string own_address;
    std::string fallback_address;  // where it is in no list
    std::chrono::milliseconds timeout;
    // Before the handler hears of it.
    std::function<void(const PeerNode&, const Error& why)> lost;
  };
  explicit PeerTable(Parts parts);

  void start();  // greets them all
  // One has said that it stops.
  void left(const PeerNode& node);
  // This daemon stops: all that are alive are told. told: once, later, when they know or the
  // deadline has passed.
  void leave(Clock::time_point deadline, const std::function<void()>& told);
  // Somebody has greeted this daemon and knows the token.
  void introduced(const PeerNode& node, std::uint64_t losses);
  // How often this daemon has found it dead.
  std::uint64_t losses_of(const PeerNode& node) const;
  // The instance is alive, as far as is known.
  bool is_alive(const PeerNode& node) const;
  const std::map<std::string, std::unique_ptr<Peer>>& peers() const { return peers_; }
  // As send() of Peer, for what is no meeting's.
  Peer* find_peer(const std::string& address);
  std::size_t alive() const;

  void use_handler(PeerHandler* handler) override { handler_ = handler; }
  PeerHandler* handler() const { return handler_; }
  bool has_peers() const override;
  const PeerNode& self() const override { return self_; }
  const std::vector<std::string>& addresses() const override { return addresses_; }
  PeerNode find(const std::string& address) const override;
  void announce(const std::string& address, v1::AnnounceRequest request, Clock::time_point deadline,
                Done<v1::AnnounceReply> done) override;
  void form(const PeerNode& peer, v1::FormRequest request, Clock::time_point deadline,
            Done<v1::FormReply> done) override;
  void commit(const PeerNode& peer, v1::CommitRequest request, Clock::time_point deadline,
              Done<v1::PeerEmpty> done) override;
  void abandon(const PeerNode& peer, v1::AbandonRequest request, Clock::time_point deadline,
               Done<v1::PeerEmpty> done) override;

 private:
  bool is_settled() const override { return is_settled_; }
  void heard_of(Peer& peer) override;
  void found_self(Peer& peer) override;
  void lost(const PeerNode& was, const Error& why) override;

  Peer& add(const std::string& address, bool is_configured);
  void settle(const std::string& address);

  // To this daemon itself where it is its own address; else as Peer's.
  template <typename Request, typename Reply>
  void send(void (PeerHandler::*handle)(const PeerNode&, const Request&, Answer<Reply>),
            std::unique_ptr<grpc::ClientAsyncResponseReader<Reply>> (PeerClient::Stub::*method)(
                grpc::ClientContext*, const Request&, grpc::CompletionQueue*),
            const PeerNode& to, Request request, Clock::time_point deadline, bool again,
            Done<Reply> done);

  Parts parts_;
  PeerNode self_;  // its address is "" until it is settled
  bool is_settled_ = false;
  std::vector<std::string> addresses_;
  std::map<std::string, std::unique_ptr<Peer>> peers_;
  PeerHandler* handler_ = nullptr;
};

}  // namespace arcomm
