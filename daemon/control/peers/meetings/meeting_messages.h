// What daemons say to each other about meetings, read: every number is checked and every text made
// safe here, for a peer may be broken or of another version. Errors name the field. Any thread.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "daemon/control/peers/peer_messenger.h"
#include "daemon/control/rendezvous/rendezvous.h"
#include "daemon/plan/network_policy.h"

namespace arcomm {

using MeetingClock = std::chrono::steady_clock;

// Ranks of one node that wait for those of others.
struct Announcement {
  struct Caller {
    pid_t pid = 0;
    std::string device;
    MeetingClock::time_point deadline;
  };
  UniqueIdBytes unique_id{};
  int ranks = 0;
  uid_t uid = 0;
  std::string worker;
  std::uint64_t remembered_epoch = 0, version = 0, segment_limit_bytes = 0;
  Coding default_coding;
  bool gpu_codecs = false;         // the node allows them
  std::uint32_t coding_rules = 0;  // as in NetworkPolicy
  std::map<Rank, Caller> callers;
  std::optional<Error> failure;  // which ended the calls of an earlier one
};
Result<Announcement> read(const v1::AnnounceRequest& request, MeetingClock::time_point now);

// A communicator to be formed, as one of its nodes sees it.
struct PlannedCommunicator {
  CommunicatorSpec spec;        // without what the calls say
  std::vector<PeerNode> nodes;  // as spec.nodes
  std::vector<Rank> here;       // this node's ranks
  std::vector<std::string> rank_devices;
  std::uint64_t segment_limit_bytes = 0;
  MeetingClock::time_point deadline;
};
// self: the node that reads it.
Result<PlannedCommunicator> read(const v1::FormRequest& request, PeerId self,
                                 MeetingClock::time_point now);

Result<UniqueIdBytes> read_unique_id(const std::string& bytes);
void write_unique_id(const UniqueIdBytes& unique_id, std::string& bytes);
// Of numbers and words that came; nothing where code is 0.
std::optional<Error> read_error(std::uint32_t code, std::uint32_t reason, int culprit,
                                const std::string& why);
v1::NetworkPolicy write(const NetworkPolicy& policy);
Result<NetworkPolicy> read(const v1::NetworkPolicy& policy);
// Somewhat later, so that what is due at about the same time is seen to in one turn.
MeetingClock::time_point on_grid(MeetingClock::time_point when);
// Whole milliseconds, 0 where it has passed.
std::uint64_t remaining_ms(MeetingClock::time_point deadline, MeetingClock::time_point now);

}  // namespace arcomm
