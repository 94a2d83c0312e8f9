// Measurements of the way to other daemons (link_meter.h), asked for here or by a peer: one at a
// time, whoever asks, for two would measure each other; of two daemons that ask each other at once
// the one with the smaller address goes first. Each is over connections of its own, so links and
// what runs on them stay as they are; but both use the network, and so slow each other down.
// Thread: the control loop; the measuring itself is done on a thread.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <thread>

#include "daemon/control/peers/links/link_meter.h"
#include "daemon/control/peers/links/link_streams.h"
#include "daemon/control/peers/peer_table.h"

namespace arcomm {

class LinkProbes {
 public:
  using Clock = EventLoop::Clock;
  using Done = std::function<void(Result<LinkSpeed>)>;
  // What stands for the worker in the names of its keys.
  static constexpr std::size_t kWorker = std::numeric_limits<std::size_t>::max();

  struct Parts {
    EventLoop& loop;
    PeerTable& table;
    DataPorts& ports;
    LinkKeys& keys;
    std::size_t streams = 8;
    std::chrono::nanoseconds spin;
  };
  explicit LinkProbes(Parts parts) : parts_(parts) {}
  ~LinkProbes() { stop(); }

  // done: once, later, by the deadline or soon after. Of this run of the peer.
  void measure(const PeerNode& peer, bool without_copies, Clock::time_point deadline, Done done);
  // The one that was asked for here ends soon, as Cancelled.
  void cancel();
  // A peer asks for one: keys for its connections.
  Result<v1::ConnectReply> connect(const PeerNode& from, const v1::ConnectRequest& request);
  // One of these has come.
  void take(PeerId from, std::uint32_t stream, net::ConnectionPtr connection);
  // None runs any more, and none begins; waits for the thread, which is not long. What was asked
  // for is not answered.
  void stop();

 private:
  // Of one measurement; null while there is none.
  struct Run {
    std::uint64_t number = 0;  // answers of an earlier one come too late
    PeerNode peer;
    LinkStreams streams;
    Clock::time_point deadline;
    bool without_copies = false;
    bool is_measuring = false;
    Done done;  // of one that a peer asked for: none
    EventLoop::TimerKey limit{};
    std::unique_ptr<LinkMeter> meter;
  };

  Status begin(const PeerNode& peer, bool without_copies, Clock::time_point deadline, Done done);
  void give_way(const PeerNode& from);
  void look_at_connections(std::uint64_t number);
  void run_meter();
  void end(std::uint64_t number, Result<LinkSpeed> result);
  // By number.
  bool runs(std::uint64_t number) const { return run_ != nullptr && run_->number == number; }

  Parts parts_;
  std::unique_ptr<Run> run_;
  std::uint64_t runs_ = 0;
  std::thread thread_;
  bool is_stopped_ = false;
};

}  // namespace arcomm
