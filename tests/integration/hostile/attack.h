// What a hostile user of the group does to the daemon, one attack at a time. Each holds what it
// took until the life ends in which it was run (hostile_client.cc), so that attacks meet each
// other's leavings. None expects an answer: refusals are what the daemon is for. Thread: one at a
// time, but for what an attack starts and joins.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "proto/unique_fd.h"
#include "tests/support/sessions/raw_session.h"

namespace arcomm::support {

using Clock = std::chrono::steady_clock;

class Attacker {
 public:
  Attacker(std::string runtime_dir, std::uint64_t seed)
      : runtime_dir_(std::move(runtime_dir)), random_(seed) {}

  // Each attack goes on until then; it has so much time at most.
  void give_time(std::chrono::milliseconds most) {
    end_ = Clock::now() +
           std::chrono::milliseconds(1 + below(static_cast<std::uint64_t>(most.count())));
  }
  bool goes_on() const { return Clock::now() < end_; }
  Clock::time_point end() const { return end_; }
  std::uint64_t below(std::uint64_t limit) { return random_() % limit; }
  std::string random_bytes(std::size_t count);
  std::mt19937_64& random() { return random_; }

  const std::string& runtime_dir() const { return runtime_dir_; }
  std::string client_socket() const { return runtime_dir_ + "/client.sock"; }
  std::string admin_socket() const { return runtime_dir_ + "/admin.sock"; }
  std::string fd_socket() const { return runtime_dir_ + "/fd.sock"; }
  // Invalid where nobody accepts.
  UniqueFd connect_packets() const;  // to the descriptor socket
  UniqueFd connect_stream() const;   // to the clients' socket
  UniqueFd connect_metrics() const;

  // A session that attacks may use and spoil; null where the daemon gives none.
  RawSession* session();
  RawSession* fresh_session(RawSession::Options options = RawSession::Options());
  void hold(UniqueFd fd) { held_.push_back(std::move(fd)); }
  void hold(std::unique_ptr<RawSession> session) { sessions_.push_back(std::move(session)); }
  void forget_sessions() { sessions_.clear(); }

 private:
  std::string runtime_dir_;
  std::mt19937_64 random_;
  Clock::time_point end_;
  std::vector<UniqueFd> held_;
  std::vector<std::unique_ptr<RawSession>> sessions_;
};

// How often it did what it is for: that many Hellos, connections, requests. For the report alone.
using AttackFunction = std::uint64_t (*)(Attacker&);
struct Attack {
  const char* name;
  AttackFunction run;
};

std::span<const Attack> socket_attacks();   // bytes and descriptors, without a session
std::span<const Attack> http2_attacks();    // frames
std::span<const Attack> control_attacks();  // sessions, joins, registrations
std::span<const Attack> request_attacks();  // rings
std::span<const Attack> port_attacks();     // of the metrics and of other daemons

// Memory of that size whose pages are not there, sealed so that it can be registered.
UniqueFd make_sparse(std::uint64_t bytes);

}  // namespace arcomm::support
