// This daemon among the others, as one piece: who they are, what they ask of it, the links to them.
// Nothing of it is there where the settings name neither peers nor a port for them.
// Thread: create(), stop() and the destructor on the daemon's main thread, the latter two as they
// say; everything else on the control loop.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "config/settings.h"
#include "daemon/control/peers/links/peer_links.h"
#include "daemon/control/peers/peer_calls.h"
#include "daemon/control/peers/peer_client.h"
#include "daemon/control/peers/peer_gate.h"
#include "daemon/control/peers/peer_server.h"
#include "daemon/control/peers/peer_table.h"

namespace arcomm {

class Peers {
 public:
  struct Parts {
    std::shared_ptr<EventLoop> loop;
    Metrics& metrics;
    FdCloser& closer;
    std::shared_ptr<const Settings> settings;
    std::vector<WorkerRef> workers;
  };
  static bool are_wanted(const Settings& settings) {
    return !settings.net.peers.empty() || !settings.net.listen.empty();
  }
  // Listens when it returns; greets once the loop runs. BadConfig or PermissionDenied for the token
  // and for TLS's files, Unavailable when the port is taken.
  static Result<std::unique_ptr<Peers>> create(Parts parts);
  ~Peers();

  PeerMessenger& messenger() { return *table_; }
  LinkMaker& link_maker() { return *links_; }
  const PeerTable& table() const { return *table_; }
  PeerLinks& links() { return *links_; }
  bool is_tls() const { return tls_.is_on(); }
  const std::string& listens_on() const { return listens_on_; }
  // Strangers on both ports who were turned away.
  std::uint64_t turned_away() const;
  std::size_t strangers() const { return gate_ ? gate_->strangers() : 0; }
  // Daemons that do not fit: of another version, with another token. The last one's story.
  std::uint64_t refused() const { return refused_; }
  const Error& last_refused() const { return last_refused_; }

  void link_lost(PeerId peer, std::size_t worker, const Error& why) {
    links_->lost(peer, worker, why);
  }
  // No connection comes in any more, and the peers hear that this daemon stops. told: once, later,
  // when they know, or soon after. What is asked is refused with that from now on.
  void begin_stop(const std::function<void()>& told);
  // While the loop runs: ends the server.
  void stop_server() { server_->stop(); }
  void close();  // on the loop, at its end: the connections, and what is under way

 private:
  explicit Peers(Parts parts) : parts_(std::move(parts)) {}
  Status read_secrets();
  Status listen(const std::vector<std::string>& configured);
  void make_table(const std::vector<std::string>& configured);
  void make_links();
  Status start_server();
  void open_data_ports(const std::vector<std::string>& hosts);
  void look_up_hosts(std::vector<std::string> hosts);
  void tell_refused(const Error& why);

  Parts parts_;
  PeerTls tls_;
  std::unique_ptr<PeerToken> token_;
  net::Address listen_;
  UniqueFd listener_;  // until the gate has it
  std::string listens_on_;
  std::unique_ptr<PeerClient> client_;  // after the table and the links, whose calls it carries
  std::unique_ptr<PeerTable> table_;
  std::unique_ptr<PeerLinks> links_;
  std::unique_ptr<PeerCalls> calls_;
  std::unique_ptr<PeerGate> gate_;
  std::unique_ptr<PeerServer> server_;
  // For what comes from threads that nobody waits for; null once this is closed. Touched on the
  // loop.
  std::shared_ptr<Peers*> reachable_ = std::make_shared<Peers*>(this);
  std::uint64_t refused_ = 0;
  Error last_refused_;
  EventLoop::Clock::time_point next_line_{};  // about the refused
};

}  // namespace arcomm
