// All that a GPU worker has beyond a host worker: its GPUs with their resident grids, the members'
// mailboxes and doorbells, and the GPU memory that is to be let go. The worker stays the owner of
// sessions, admission and boards. Thread: the worker's. Never waits longer than a grid takes to
// leave (microseconds), except for allocations, which stop all grids meanwhile.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "config/settings.h"
#include "daemon/exec/gpu/gpu_group.h"
#include "daemon/exec/gpu/gpu_hardware.h"
#include "daemon/exec/gpu/in_stream_image.h"
#include "daemon/exec/worker/device_worker.h"
#include "daemon/session/persistent_plan.h"

namespace arcomm {

class GpuPlane {
 public:
  // Opens every GPU; slow.
  static Result<std::unique_ptr<GpuPlane>> create(const std::vector<Device*>& gpus,
                                                  const OpenGpu& open, const Settings& settings);
  ~GpuPlane();
  GpuPlane(const GpuPlane&) = delete;
  GpuPlane& operator=(const GpuPlane&) = delete;
  void use_settings(const Settings& settings);

  // ---- memory ----
  // "" is the first GPU. NotFound names those there are.
  Result<std::size_t> find_gpu(const std::string& name) const;
  Result<Memory> allocate(std::size_t gpu, std::uint64_t bytes);
  Result<Memory> import(std::size_t gpu, const BufferSpec& seed);
  // Let go a little later, when no grid runs.
  void release_later(Memory memory);

  // ---- communicators ----
  // Mailboxes, doorbells and scratch for every rank; nothing is left behind where it fails.
  // most_in_stream_bytes: as in LaunchFacts.
  Result<std::unique_ptr<GpuGroup>> make_group(const CommunicatorSpec& seed,
                                               std::uint64_t most_in_stream_bytes);
  void adopt(Communicator& communicator, const std::vector<MemberId>& members,
             std::unique_ptr<GpuGroup> group);
  void forget(GpuGroup& group);  // its destructor's
  Result<MailboxDescriptors> export_mailbox(const GpuGroup& group, Rank rank) const;
  // All members hear `why`, whether they wait or will; their resident operations end.
  void close(GpuGroup& group, Done why);
  // The rank leaves: the others hear `why` as soon as what all had called has ended.
  void end_after_leave(GpuGroup& group, Rank rank, Done why);
  // From its return on no resident operation of this member touches memory. Those that all ranks
  // have called get a moment to end.
  Status retire(GpuGroup& group, Rank rank);

  // Acts while no grid runs and nothing waits for a client: what was aborted so far has left, what
  // all ranks have called may still run. What is buried is let go afterwards. Unavailable, and
  // nothing done, where they do not come to rest.
  template <typename Act>
  Status quiesced(Act act) {
    const QuiesceGuard quiesce(*this);
    if (quiesce.status()) act();
    return quiesce.status();
  }

  // All ranks' parts, now; `calls` by rank. `launched`: bit r where rank r's part has begun or may
  // have, after an error too.
  Status launch(GpuGroup& group, std::uint32_t parity, CudaAlgorithm algorithm,
                std::span<const CudaAllReduce> calls, std::uint64_t& launched);

  // ---- launching ahead, gpu_speculation.cc ----
  // While anything waits for a client in a GPU's queue, nothing may be allocated, mapped or let go
  // there: every QuiesceGuard withdraws all groups first.
  bool may_speculate(const GpuGroup& group) const;
  // One call per rank. After an error some ranks' parts may be there and others' not: only the end
  // of the communicator is left.
  Status speculate(GpuGroup& group, const Gate& gate, CudaAlgorithm algorithm,
                   std::span<const CudaAllReduce> calls);
  Status speculate(GpuGroup& group, const Gate& gate, CudaAlgorithm algorithm,
                   const PreparedParts& prepared);
  // For the second arm(); some 100 us per rank, with all GPUs at rest.
  Result<PreparedParts> prepare(GpuGroup& group, const PlanTuple& plans, CudaAlgorithm algorithm,
                                std::span<const CudaAllReduce> calls);
  // What waits there shall not happen. Returns whether all has left, or had happened (state None or
  // Ran); otherwise it is Leaving, and tend() sees to it.
  bool withdraw(GpuGroup& group, std::uint64_t patience_ns);
  // From now on nothing is launched speculatively, until use_settings() says otherwise.
  void stop_speculating();
  // Lets what was launched behind this gate begin, whatever the clients wrote. All ranks must have
  // called it.
  void open(GpuGroup& group, const Gate& gate);
  // Has everything left the members' queues?
  bool has_left(const GpuGroup& group);
  // A rank that waits for the others holds SMs of its GPU: not for long where somebody else
  // has work there.
  void clear_the_way(std::uint64_t now_ns);
  struct SpeculationCounts {
    std::uint64_t hits = 0, misses = 0;
  };
  SpeculationCounts speculation_counts;  // whoever counts them takes them away

  // ---- plans of the resident path ----
  Status set_plan(PlanId id, const GpuMember& member, const PersistentPlan& plan);
  // FailedPrecondition while an operation of the plan is open: by the grid's own account, as the
  // plan's buffers may be let go after it. group: null once it is gone.
  Status clear_plan(PlanId id, const PersistentPlan& plan, GpuGroup* group, Rank rank);

  // ---- the loop's verbs ----
  struct ResidentFailure {
    Communicator* communicator = nullptr;
    Rank rank = kNoRank;
    Done how;
    bool in_stream = false;  // the client says so
  };
  // Leases; what failed on the resident path since the last call; what may be let go.
  const std::vector<ResidentFailure>& tend(std::uint64_t now_ns);
  // The communicator in which a rank that was missing here waited for `rank`, which waited here
  // until just now, both in in-stream operations, or null: by how many of them each had begun.
  Communicator* find_crossing(const GpuGroup& group, Rank rank, std::uint64_t now_ns) const;
  void moved(std::uint64_t now_ns) { moved_ns_ = now_ns; }
  // A GPU is in error, or does not answer: nothing it is asked for will be done, and only a new
  // process can use it again.
  bool lost() const;
  // How long the worker may sleep, as no GPU can ring it.
  std::uint64_t rest_ns(std::uint64_t now_ns) const;

  const std::vector<GpuGroup*>& groups() const { return groups_; }
  GpuLauncher& launcher(const GpuMember& member) { return *gpus_[member.gpu].hardware.launcher; }
  RankCompletion& words(const GpuMember& member) { return launcher(member).words()[member.words]; }
  // Of all ranks, ever; in-stream ones count when they have begun.
  std::uint64_t resident_done() const { return resident_done_; }
  // What was stored beside the queues has arrived, the deferred are empty. At the end.
  void shut_down();

 private:
  struct Gpu {
    Device* device = nullptr;
    GpuHardware hardware;
    std::uint64_t changed_ns = 0;  // a resident operation was posted or ended
    bool wanted = false;           // one is open
    bool broken = false;           // its grid did not leave, or does not start
    std::vector<std::uint32_t> free_words;
    std::vector<std::uint32_t> free_queues;  // its launcher's own ones
  };
  // What is left of a member: its slot goes before its memory.
  struct DeferredRelease {
    std::size_t gpu = 0;
    std::uint32_t slot = kNoSlot, words = kNoSlot, queue = 0;
    Memory memory[4];
    DoorbellPage doorbells;
    std::vector<PreparedParts> prepared;                              // may be running in
    std::vector<std::pair<std::size_t, std::uint32_t>> prepared_for;  // these GPUs' queues
  };
  // While it lives no grid runs and nothing waits for a client; the grids that did run again after
  // it. Empties the deferred.
  class QuiesceGuard {
   public:
    explicit QuiesceGuard(GpuPlane& plane);
    ~QuiesceGuard();
    QuiesceGuard(const QuiesceGuard&) = delete;
    QuiesceGuard& operator=(const QuiesceGuard&) = delete;
    const Status& status() const { return status_; }

   private:
    GpuPlane& plane_;
    std::vector<std::size_t> stopped_;
    Status status_;
  };

  GpuPlane() = default;
  void try_lines();
  Status try_lines(const Gpu& writer, const Gpu& reader, Memory& memory);
  CudaAbilities abilities_of(const GpuGroup& group) const;
  std::uint32_t in_stream_blocks_for(const GpuGroup& group, const CommunicatorSpec& seed,
                                     std::string& why_not) const;
  Status take(const GpuMember& member, Memory& place, std::uint64_t bytes);
  Status fill(GpuMember& member, std::uint32_t ranks);
  Status join_grids(GpuGroup& group);
  void dispose(GpuGroup& group);
  void release_deferred();  // no grid runs
  // Has everything left the queues of those that are gone?
  bool deferred_are_idle();
  void drop_slot(GpuMember& member);
  void resume(Gpu& gpu);
  Status pause(Gpu& gpu);
  void look_at_health(std::uint64_t now_ns);
  ResidentGrid& grid(const GpuMember& member) { return *gpus_[member.gpu].hardware.grid; }
  bool look_at(GpuGroup& group, std::uint64_t now_ns);
  // What its client says of in-stream operations; false: one has failed.
  bool look_at_in_stream(GpuGroup& group, GpuMember& member, std::uint64_t now_ns);
  void begin_speculation(GpuGroup& group, const Gate& gate, CudaAlgorithm algorithm);
  CudaGate gate_of(const GpuGroup& group, const GpuMember& member, PlanId plan) const;
  void release_dropped_later(GpuGroup& group);
  void look_at_speculation(GpuGroup& group, std::uint64_t now_ns);
  // A moment at most.
  void wait_for_resident(GpuMember& member);

  std::vector<Gpu> gpus_;
  std::vector<bool> atomic_128b_stores_;  // by writer and reader, as they were at the start
  InStreamImage in_stream_image_;
  bool in_stream_ = true;  // settings' word, for communicators to come
  std::vector<GpuGroup*> groups_;
  std::vector<DeferredRelease> deferred_;
  std::uint64_t first_deferred_ns_ = 0;
  std::vector<ResidentFailure> failures_;
  std::uint64_t lease_ns_ = 0;
  std::uint64_t asked_health_ns_ = 0;
  std::uint64_t speculation_lease_ns_ = 0;  // 0: nothing is launched speculatively
  std::uint64_t moved_ns_ = 0;
  std::uint64_t resident_done_ = 0;
};

}  // namespace arcomm
