// How long an AllReduce between nodes takes by the alpha-beta model: the schedules of
// daemon/plan/network run message by message, without sockets. Each node has one full-duplex link
// to a network that is never in the way: what a node sends leaves one after the other, what it gets
// arrives one after the other, and both go on at once. What arrives is combined and goes on chunk
// by chunk, so a latency is hidden where there is enough under way. Pure; any thread. Times are
// microseconds.
#pragma once

#include <cstdint>

#include "daemon/plan/network/network_choice.h"
#include "daemon/plan/network/network_question.h"
#include "daemon/plan/network/ring_tiers.h"

namespace arcomm::bench {

struct NetworkCosts {
  double latency_us = 15;         // alpha: from a send to the first byte's arrival
  double gigabytes = 3.0;         // 1 / beta: per second and direction, of a node's link
  double message_us = 1;          // of the sender's and the receiver's processor, for each message
  double combine_gigabytes = 20;  // per second and input: two of 1 MB give 10 GB/s of results
  std::uint64_t window_bytes = std::uint64_t{1} << 20;  // under way between two nodes at most
  // Node k sends to k + 1, k + 2, ..., a chunk to each in turn; else all begin with node 0, and
  // send everything to one before they go on to the next.
  bool staggered = true;
};

// shape: of a ring; ignored by the others.
double simulate(const NetworkQuestion& question, const NetworkChoice& choice,
                const RingShape& shape, const NetworkCosts& costs);

// What no algorithm can beat: every node gets and sends its share twice.
double floor_us(const NetworkQuestion& question, const NetworkCosts& costs);

}  // namespace arcomm::bench
