// What a user may send on HTTP/2 connections that is no call: frames that cost the server more than
// their sender, a call that is begun and reset above all (rapid reset). So many at once and so many
// a second, of each connection, and of all connections of a user together (uids of one range as
// one: daemon/telemetry/uid_range.h). Calls themselves bring some along. A user who has used up
// what all its connections may is shut out for a while: to connect anew would be a way around it.
// And how many calls may be begun without an end: they cost memory for as long as they last.
// Thread: the control loop.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <unordered_map>

#include "daemon/control/access/frame_reader.h"
#include "daemon/exec/token_bucket.h"
#include "proto/status.h"

namespace arcomm {

class FloodBudget {
 public:
  struct Rates {
    BucketRate resets, others;
  };
  // A process whose ranks all give up waiting resets a hundred calls at once.
  static constexpr Rates kOfConnection{.resets = {.interval_ns = 10'000'000, .burst = 256},
                                       .others = {.interval_ns = 1'000'000, .burst = 4096}};
  static constexpr Rates kOfUser{.resets = {.interval_ns = 2'000'000, .burst = 2048},
                                 .others = {.interval_ns = 200'000, .burst = 16'384}};
  // Other frames that come with a call: acknowledgements, and room for its answer.
  static constexpr std::uint64_t kOthersWithCall = 8;
  static constexpr std::uint64_t kShutOutNs = 1'000'000'000;
  // Begun and not ended: more than gRPC lets a client have that heeds it (rpc_server.cc), since
  // clients begin before they have heard; and as many ranks that wait as quota.communicators gives.
  static constexpr std::size_t kOpenOfConnection = 128, kOpenOfUser = 2048;

  // A connection's own.
  class Connection {
    friend class FloodBudget;
    TokenBucket resets_, others_;
    std::uint64_t prepaid_ = 0;  // other frames, by calls
    std::size_t open_ = 0;       // calls, as its user's are counted
  };

  // For what has come over a connection since the last time, of both sides: a server's reset may be
  // its client's doing, too. ResourceExhausted/Quota: more than the connection, or its user, may
  // send.
  Status pay(Connection& connection, uid_t uid, const FrameCounts& came, std::uint64_t now_ns);
  // So many calls of the connection have begun and not ended. ResourceExhausted/Quota as above.
  Status keep_open(Connection& connection, uid_t uid, std::size_t open);
  // The connection has ended, or again: what was open there ends as if it had been reset.
  void end(Connection& connection, uid_t uid, std::uint64_t now_ns);
  bool shuts_out(uid_t uid, std::uint64_t now_ns) const;

 private:
  struct User {
    TokenBucket resets, others;
    std::uint64_t shut_out_until_ns = 0;
    std::size_t open = 0;
  };
  void forget_idle(std::uint64_t now_ns);

  std::unordered_map<uid_t, User> users_;  // by first_of_range(); a new one is as good as none
};

}  // namespace arcomm
