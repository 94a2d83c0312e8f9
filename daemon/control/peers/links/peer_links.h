// Makes and remakes the links of this daemon's workers (link_maker.h). Of a pair of daemons the one
// whose address text is smaller connects: it asks the other for keys (Connect), opens the
// connections and gives them to its worker; the other one collects them as they come and does the
// same. What is half made is closed when its time is up. Thread: the control loop.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "daemon/control/calls/worker_replies.h"
#include "daemon/control/node_devices.h"
#include "daemon/control/peers/link_maker.h"
#include "daemon/control/peers/links/data_ports.h"
#include "daemon/control/peers/links/link_keys.h"
#include "daemon/control/peers/links/link_probes.h"
#include "daemon/control/peers/links/link_streams.h"
#include "daemon/control/peers/links/link_traffic.h"
#include "daemon/control/peers/peer_table.h"
#include "daemon/plan/network/network_tuning.h"

namespace arcomm {

class PeerLinks final : public LinkMaker {
 public:
  enum class State : std::uint8_t {
    Down,
    Asking,      // for keys
    Connecting,  // connections are on their way out
    Collecting,  // they are on their way in
    Opening,     // the worker gets them
    Up,
  };
  struct Link {
    PeerNode peer;
    std::size_t worker = 0;
    State state = State::Down;
    Clock::time_point since{};        // of the state
    std::uint64_t attempt = 0;        // answers of an earlier one come too late
    std::uint64_t attempt_there = 0;  // the peer's number of the last that it had keys for
    LinkStreams streams;
    Error why;  // why the last attempt failed, or the link ended
    struct Waiter {
      Done done;
      EventLoop::TimerKey timer;
    };
    std::list<Waiter> waiters;
    EventLoop::TimerKey limit{};  // of the attempt
    EventLoop::TimerKey retry{};
  };
  struct Parts {
    EventLoop& loop;
    Metrics& metrics;
    PeerTable& table;
    std::vector<WorkerRef> workers;
    std::uint16_t data_port = 0;
    std::size_t streams = 8;   // besides stream 0
    bool have_threads = true;  // each; else the worker drives them
    std::vector<int> cpus;     // of the streams' threads, in turn
    std::chrono::nanoseconds spin;
    std::chrono::milliseconds peer_timeout;
  };
  explicit PeerLinks(Parts parts);

  DataPorts& ports() { return ports_; }
  const DataPorts& ports() const { return ports_; }
  const std::map<LinkName, Link>& links() const { return links_; }
  const std::string& worker_name(std::size_t worker) const { return parts_.workers[worker].device; }

  void ensure(const PeerNode& peer, const std::string& worker, Clock::time_point deadline,
              Done done) override;
  // A peer asks for keys, or, with no addresses, to be connected to.
  void connect(const PeerNode& from, const v1::ConnectRequest& request,
               const Answer<v1::ConnectReply>& answer);
  // The worker has let go of it.
  void lost(PeerId peer, std::size_t worker, const Error& why);
  // The peer is dead: no link to it stays.
  void close(const PeerNode& peer, const Error& why);
  void stop();

  // Of links that are made from now on.
  void use_tuning(std::shared_ptr<const NetworkTuning> tuning) { tuning_ = std::move(tuning); }
  LinkProbes& probes() { return probes_; }
  // What the workers' links to it have carried, both ways, as of the last second.
  std::uint64_t bytes_with(PeerId peer) const { return traffic_.bytes_with(peer); }

 private:
  Result<std::size_t> find_worker(const std::string& name) const;
  Link& link_to(const PeerNode& peer, std::size_t worker);
  bool connects_to(const PeerNode& peer) const;
  LinkName name_of(const Link& link) const { return {link.peer.instance, link.worker}; }
  void enter(Link& link, State state);

  void begin(Link& link);  // asks for keys, or to be connected to
  void ask_for_keys(Link& link);
  void ask_to_connect(Link& link);
  void open_connections(Link& link, const v1::ConnectReply& reply);
  void look_at_connections(const LinkName& name, std::uint64_t attempt);
  Result<v1::ConnectReply> hand_out_keys(Link& link, const v1::ConnectRequest& request);
  void take_connection(net::ConnectionPtr connection);
  void give_to_worker(Link& link);
  void opened(const LinkName& name, std::uint64_t attempt, const Status& status);
  void fail_attempt(Link& link, const Error& why);
  void drop_attempt(Link& link);
  void finish_waiters(Link& link, const Status& status);
  void close_at_worker(const Link& link, const Error& why);

  Parts parts_;
  WorkerReplies replies_;
  LinkKeys keys_;
  DataPorts ports_;
  std::map<LinkName, Link> links_;
  std::uint64_t last_attempt_ = 0;  // of all links
  std::size_t next_cpu_ = 0;
  LinkTraffic traffic_;
  LinkProbes probes_;
  std::shared_ptr<const NetworkTuning> tuning_;  // null: nothing was measured
};

}  // namespace arcomm
