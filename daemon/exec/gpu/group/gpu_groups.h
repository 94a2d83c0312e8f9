// The communicators of GPUs: forming them with all that their ranks need, closing and leaving them.
// Thread: the worker's.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "config/settings.h"
#include "daemon/exec/gpu/deferred_release.h"
#include "daemon/exec/gpu/gpu_engine.h"
#include "daemon/exec/gpu/group/gpu_group.h"
#include "daemon/exec/gpu/group/in_stream_offer.h"
#include "daemon/exec/gpu/group/in_stream_waits.h"
#include "daemon/exec/gpu/group/peer_lines.h"
#include "daemon/exec/gpu/group/resident_path.h"
#include "daemon/exec/gpu/group/scratch_slots.h"
#include "daemon/exec/gpu/hardware/in_stream_image.h"
#include "daemon/exec/gpu/quiescer.h"
#include "daemon/exec/gpu/speculation/speculator.h"
#include "daemon/exec/specs.h"
#include "daemon/plan/launch_table_builder.h"

namespace arcomm {

class GpuGroups {
 public:
  // Opens every GPU; slow. `open` empty: as this build does it.
  static Result<std::unique_ptr<GpuGroups>> create(const std::vector<Device*>& gpus,
                                                   const OpenGpu& open);
  GpuGroups(const GpuGroups&) = delete;
  GpuGroups& operator=(const GpuGroups&) = delete;
  void use_settings(const Settings& settings) {
    in_stream_ = settings.gpu.in_stream;
    codecs_ = settings.gpu.codecs;
    in_stream_communicators_ = static_cast<std::uint32_t>(settings.gpu.in_stream_communicators);
    slots.use_limit(settings.gpu.scratch_bytes);
  }

  // "" is the first GPU. NotFound names those there are.
  Result<GpuEngine*> find_gpu(const std::string& name);
  bool lost() const;  // a GPU is broken
  // The group of a member, and its rank there; null once the communicator is gone.
  GpuGroup* find_group(MemberId member, Rank& rank) const;

  // Mailboxes, doorbells and scratch for every rank; nothing is left behind where it fails, but for
  // Unavailable, after which the same call may go on with `group`. Memory takes time, beside a GPU
  // that others fill 15 ms for each rank: false, once it has taken a part of the turn, and the next
  // call goes on.
  // make_table: from what the GPUs can do, asked once: the table holds for the group's life.
  using MakeTable = std::function<LaunchTable(const LaunchFacts& facts)>;
  Result<bool> make(const CommunicatorSpec& spec, const MakeTable& make_table,
                    std::unique_ptr<GpuGroup>& group);
  // The communicator has its extension and its members' ids now.
  void adopt(Communicator& communicator);
  Result<MailboxDescriptors> export_mailbox(const GpuGroup& group, Rank rank) const;
  // All members hear `why`, whether they wait or will; their resident operations end.
  void close(GpuGroup& group, Done why);
  // The rank goes: nothing that it called touches memory from its return on.
  void retire(GpuGroup& group, Rank rank);
  // The others hear `why` as soon as what all had called has ended.
  void end_after_leave(GpuGroup& group, Rank rank, Done why);
  void forget(GpuGroup& group);  // its destructor's; waits for nothing

  // ---- what all who work on the groups share ----
  TurnBudget turn;
  std::vector<GpuEngine> engines;
  std::vector<GpuGroup*> all;
  DeferredRelease deferred;
  LaunchRoom room;  // before those who leave it when they go
  Speculator speculator{all, deferred, room};
  Quiescer quiescer{engines, all, speculator, deferred, turn};
  ResidentPath resident{quiescer};
  ScratchSlots slots{quiescer, all, turn};
  InStreamWaits in_stream_waits;

 private:
  GpuGroups() = default;
  Result<std::unique_ptr<GpuGroup>> begin(const CommunicatorSpec& spec);
  // What it needs to find room on its GPUs, for in-stream operations and launched ones. False:
  // operations that run have the SMs still; those that come do not. Ask again.
  bool take_room(GpuGroup& group);
  void give_back_sms(GpuGroup& group);
  CudaAbilities abilities_of(const GpuGroup& group) const;
  InStreamOffer in_stream_offer(const GpuGroup& group, const CommunicatorSpec& spec) const;

  struct Place {
    GpuGroup* group = nullptr;
    Rank rank = kNoRank;
  };

  std::unordered_map<MemberId, Place> places_;
  std::unique_ptr<PeerLines> lines_;
  InStreamImage image_;
  // Settings' words, for communicators to come.
  bool in_stream_ = true;
  bool codecs_ = true;
  std::uint32_t in_stream_communicators_ = 2;
};

}  // namespace arcomm
