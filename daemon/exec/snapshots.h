// A worker's state as values for people: what `arctl status|sessions|comms` print.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "daemon/comm/unique_id.h"
#include "daemon/exec/specs.h"
#include "daemon/plan/network_policy.h"
#include "proto/gpu/launch_table.h"
#include "proto/status.h"
#include "proto/types.h"

namespace arcomm {

struct SessionSnapshot {
  SessionId id;
  PeerCredentials peer;
  std::string process_name, state;
  std::uint64_t communicators = 0, buffers = 0, registered_bytes = 0, in_flight = 0;
  std::uint64_t submitted = 0, completed = 0, failed = 0, rejected = 0, age_ms = 0;
};
struct RankSnapshot {
  Rank rank = 0;
  SessionId session;           // none where the rank is on another node
  pid_t pid = 0;               // 0: not known
  std::uint64_t next_seq = 0;  // operations seen from this rank; 0 of other nodes'
  std::string waiting;         // "" or "seq 7 since 120 ms"
  std::string node = {};       // where it is, of a communicator that spans several
};
struct CommunicatorSnapshot {
  UniqueIdBytes unique_id{};
  std::uint64_t epoch = 0;
  std::string state;  // "ready" or "revoked: <why>"
  Reason reason = Reason::None;
  Rank culprit = kNoRank;
  std::uint64_t operations_done = 0, operations_failed = 0;
  std::vector<RankSnapshot> ranks;
  std::string diagnosis;
  // On GPUs: the table in use, and why not more of it is in-stream; "" where nothing hinders.
  std::optional<LaunchTable> launches = std::nullopt;
  std::string why_not_in_stream = {};
  std::string why_no_slots = {};   // likewise, for the algorithms that need some
  std::string why_no_codecs = {};  // likewise, where its ranks are on several nodes
  Coding default_coding = {};
  std::uint32_t most_sms = 0;  // CommunicatorSpec's
  std::uint32_t nodes = 1;
  NetworkPolicy policy = {};  // where it spans several
};
// To a peer, of all its streams together since it was opened.
struct LinkSnapshot {
  PeerId peer = 0;
  std::uint64_t sent_bytes = 0, received_bytes = 0;
  std::uint64_t retransmits = 0;  // segments
  std::uint64_t rtt_us = 0;       // the least that the transport saw, of the stream of messages
  // How fast what was sent has reached the peer lately: of the bulk streams together, where there
  // are any.
  std::uint64_t delivered_bytes_per_second = 0;
  // How long sending has waited for room there, and for room in this side's buffers.
  std::uint64_t waited_for_peer_us = 0, waited_for_buffer_us = 0;
  std::uint64_t spun_ns = 0, slept_ns = 0;  // of the streams' threads
};
struct WorkerSnapshot {
  std::string device, state;
  std::uint64_t operations_done = 0, operations_failed = 0, bytes_reduced = 0,
                operations_pending = 0;
  double busy_fraction = 0;
  std::uint64_t slowest_turn_ns = 0;  // of its loop, since it began
  std::vector<SessionSnapshot> sessions;
  std::vector<CommunicatorSnapshot> communicators;
  std::vector<LinkSnapshot> links = {};
};

}  // namespace arcomm
