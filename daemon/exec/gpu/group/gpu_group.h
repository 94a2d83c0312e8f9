// A communicator as its GPUs see it: each member's mailbox, doorbells and scratch, and where its
// launch paths stand. Goes with the communicator; what it owned is then let go by its owner, which
// knows when that is safe. Thread: the worker's.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "daemon/comm/communicator.h"
#include "daemon/exec/gpu/gpu_engine.h"
#include "daemon/exec/gpu/group/doorbell_page.h"
#include "daemon/exec/gpu/launch_room.h"
#include "daemon/exec/gpu/speculation/prepared_launches.h"
#include "daemon/exec/gpu/speculation/speculation.h"
#include "daemon/exec/specs.h"
#include "daemon/exec/token_bucket.h"
#include "proto/gpu/device_mailbox.h"
#include "proto/gpu/exchange.h"
#include "proto/gpu/launch_table.h"
#include "transport/device/memory.h"

namespace arcomm {

class GpuGroups;

// What all ranks have called ends in microseconds; a caller waits at most this long.
inline constexpr std::uint64_t kMomentNs = 200'000;

struct GpuMember {
  GpuEngine* engine = nullptr;
  Rank rank = kNoRank;  // local: its place among the group's members
  SessionId session;
  MemberId id;
  MemoryToken token;  // of its user's charge, for the mailbox and the exchange
  Memory mailbox, scratch, resident_scratch;
  Memory exchange;  // proto/gpu/exchange.h; none where the group is not in-stream
  Memory network;   // network/network_fifos.h; none where all ranks are on this node
  DoorbellPage doorbells;
  std::uint32_t completion = kNoSlot;  // its place among the engine's
  std::uint32_t queue = 0;             // of its launcher; not 0: its own
  std::uint32_t slot = kNoSlot;  // in its GPU's resident grid; none where there is no such path
  bool active = true;            // may start operations: its rank has not left
  std::uint32_t taken = 0;       // number of the last launched operation
  // The resident path, as last seen.
  std::uint32_t posted = 0;  // as the client says
  std::uint32_t done = 0;
  std::uint64_t changed_ns = 0;
  std::uint32_t in_stream_begun = 0;     // in-stream operations, as the client says
  std::uint64_t in_stream_begun_ns = 0;  // when that was seen
  // How many they were before, if that was so for kStandingNs, and when it was over.
  std::uint32_t in_stream_stood_at = 0;
  std::uint64_t in_stream_stood_until_ns = 0;
  // Of its longest plan: a rank that posts nothing keeps no grid awake.
  std::uint64_t budget_ns = 0;

  DeviceMailbox* device_mailbox() const { return reinterpret_cast<DeviceMailbox*>(mailbox.data()); }
  GpuLauncher& launcher() const { return engine->launcher(); }
  ResidentGrid& grid() const { return engine->grid(); }
  RankCompletion& words() const { return engine->completion(completion); }
};

class GpuGroup final : public CommunicatorExtension {
 public:
  explicit GpuGroup(GpuGroups& owner) : owner_(owner) {}
  ~GpuGroup() override;  // hands what it owns to its owner

  bool is_in_stream() const { return in_stream_blocks != 0; }
  GpuMember& member(Rank rank) { return members[static_cast<std::size_t>(rank)]; }
  const GpuMember& member(Rank rank) const { return members[static_cast<std::size_t>(rank)]; }
  // Of the next gate. What is launched without one goes there too: that gate must not take its call
  // for its own.
  std::uint32_t next_parity() const { return (gates + 1) % 2; }

  // Nothing more is launched before its scratches have started over.
  bool must_start_over() const {
    return operations >= members.front().launcher().operations_of_scratch();
  }

  // Something of it may come to fill SMs, or does.
  bool is_in_queues() const {
    return has_run || speculation.state == Speculation::State::Waiting ||
           speculation.state == Speculation::State::Leaving;
  }

  Communicator* communicator = nullptr;  // owns this
  std::vector<GpuMember> members;        // by local rank
  CudaAbilities abilities;               // of their GPUs, together
  LaunchTable launches;                  // which path its operations take; all ranks have the same
  std::uint32_t in_stream_blocks = 0;    // its share of each GPU's SMs; 0: nothing is in-stream
  bool in_tiny_share = false;            // of the tiny ones (plan/in_stream_share.h)
  bool has_lent_sms = false;             // they are its own until it is closed
  std::string why_not_in_stream;         // or not all that could be: for people
  // In its scratches: scratch_slots.h.
  enum class Slots : std::uint8_t { None, Wanted, Here, Refused };
  Slots slots = Slots::None;
  std::string why_no_slots;        // where they were refused: for people
  std::string why_no_codecs;       // where it spans nodes that do not all allow them: for people
  bool waits_are_indexed = false;  // in_stream_waits.h
  std::uint64_t compared_ns = 0;   // when the ranks' calls last were: path_mismatch.h
  bool closed = false;             // everybody was told so
  // A rank has left: the others are told this, once what all had called has ended.
  std::optional<Done> ending;
  std::uint32_t ends_after = 0;  // resident operations

  // The launched path ahead of its calls.
  Prediction prediction;
  PreparedLaunches prepared;
  Speculation speculation;
  LaunchGate running;                 // of what runs, where that was launched speculatively
  std::uint32_t gates = 0;            // number of the last gate: see gated_launch.h; modulo 2^32
  std::uint32_t paused_launches = 0;  // so many operations without looking ahead
  TokenBucket preparing;              // each quiesces all GPUs
  std::uint32_t operations = 0;       // launched since the scratches started over
  bool starts_over = false;           // they are told to
  LaunchPlace place;                  // of what is launched
  bool has_run = false;               // an operation that was called is in the queues
  std::uint32_t most_blocks = kDefaultCudaBlocks;  // of a kernel of it
  std::uint32_t most_sms = 0;                      // as its ranks ask; 0: no bound

 private:
  GpuGroups& owner_;
};

// What the API calls a member's rank, once its group has a communicator.
inline Rank global_rank(const GpuGroup& group, Rank local) {
  return group.communicator->seats[static_cast<std::size_t>(local)].rank;
}
inline Rank local_rank(const Communicator& communicator, Rank global) {
  return static_cast<Rank>(communicator.world.place(global).local);
}

// Null where the communicator is not of GPUs.
inline GpuGroup* gpus_of(const Communicator& communicator) {
  return static_cast<GpuGroup*>(communicator.extension.get());
}

// As a mailbox's `closed` says it.
inline Done done_of(const Failure& failure) {
  return {.code = static_cast<std::uint8_t>(failure.code),
          .reason = static_cast<std::uint8_t>(failure.reason),
          .culprit_rank = static_cast<std::int16_t>(failure.culprit)};
}

// a is at or behind b, counting modulo 2^32.
constexpr bool reached(std::uint32_t a, std::uint32_t b) {
  return static_cast<std::int32_t>(a - b) >= 0;
}

// Tells its client and its kernels that the communicator is over.
void close_mailbox(const GpuMember& member, Done why);

}  // namespace arcomm
