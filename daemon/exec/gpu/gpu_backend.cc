#include "daemon/exec/gpu/gpu_backend.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "daemon/exec/clock.h"
#include "daemon/session/admission.h"
#include "daemon/telemetry/log/log.h"
#include "daemon/telemetry/metrics/metrics.h"

namespace arcomm {
namespace {

constexpr std::uint64_t kLastFlushNs = 10'000'000;
constexpr std::uint64_t kShutDownNs = 1'000'000'000;  // what is left then is the driver's
constexpr std::uint64_t kHealthNs = 50'000'000;
constexpr std::uint64_t kSpinNs = 2'000'000;         // after the last movement
constexpr std::uint64_t kShortNapsNs = 100'000'000;  // after that
constexpr std::uint64_t kShortNapNs = 50'000;
// A nap costs what the machine's timers cost, from 4 us to 35 us in a virtual machine: the longer
// nothing moves, the longer the next start may wait to be seen.
struct Nap {
  std::uint64_t before_ns, nap_ns;  // of stillness
};
constexpr Nap kNaps[] = {{kSpinNs, 0},
                         {kSpinNs + kShortNapsNs, kShortNapNs},
                         {1'000'000'000, 500'000},
                         {10'000'000'000, 1'000'000}};
constexpr std::uint64_t kLongestNapNs = 5'000'000;

Error other_work_fills() {
  return error(ErrorCode::FailedPrecondition, Reason::None,
               "other work fills a GPU on which a kernel of the daemon's waits for room, and CUDA "
               "would wait for both; try again");
}

Error clears_late(const GpuEngine& engine) {
  return error(ErrorCode::Unavailable, Reason::None, "memory of ", engine.name(),
               " that could not be cleared in time is kept while other work holds that up, or "
               "somebody still waits for it; try again");
}

}  // namespace

OpenBackend gpu_backend_on(std::vector<Device*> gpus, OpenGpu open) {
  return [gpus = std::move(gpus),
          open = std::move(open)](const BackendParts& parts) -> Result<std::unique_ptr<Backend>> {
    Result<std::unique_ptr<GpuBackend>> backend = GpuBackend::create(gpus, open, parts);
    if (!backend) return std::move(backend).error();
    return std::unique_ptr<Backend>(std::move(backend).value());
  };
}

Result<std::unique_ptr<GpuBackend>> GpuBackend::create(const std::vector<Device*>& gpus,
                                                       const OpenGpu& open,
                                                       const BackendParts& parts) {
  Result<std::unique_ptr<GpuGroups>> groups = GpuGroups::create(gpus, open);
  if (!groups) return std::move(groups).error();
  std::unique_ptr<GpuBackend> backend(new GpuBackend(parts, std::move(groups).value()));
  backend->use_settings(parts.settings);
  const Settings::Net& net = parts.settings.net;
  backend->staging_ = {.bytes = net.staging_bytes,
                       .at_once = !net.peers.empty() || !net.listen.empty()};
  return backend;
}

GpuBackend::GpuBackend(const BackendParts& parts, std::unique_ptr<GpuGroups> groups)
    : buffers_(parts.buffers),
      plans_(parts.plans),
      metrics_(parts.metrics),
      groups_(std::move(groups)),
      planner_(parts.tuning),
      executor_(*groups_, buffers_, plans_) {}

void GpuBackend::use_settings(const Settings& settings) {
  planner_.use_settings(settings);
  groups_->use_settings(settings);
  const std::uint64_t lease_ns = settings.gpu.lease_ms * 1'000'000;
  cuda_ipc_ = settings.gpu.cuda_ipc;
  // Without residence each burst of operations brings the grid and takes it away again.
  lease_ns_ = settings.gpu.resident ? lease_ns : 0;
  groups_->speculator.use_lease(settings.gpu.speculative ? lease_ns : 0);
  early_ns_ = settings.net.gpu_early_us * 1000;
  if (network_ != nullptr) network_->use_early(early_ns_);
  const AdmissionLimits limits = AdmissionLimits::from(settings, false);
  default_timeout_ns_ = limits.default_timeout_ns;
  max_timeout_ns_ = limits.max_timeout_ns;
}

void GpuBackend::begin_drain() {
  groups_->speculator.use_lease(0);
  if (network_ != nullptr) network_->use_early(0);
  groups_->speculator.withdraw_all(groups_->turn, kMomentNs);
  measurements_.end();
}

std::span<const DoorbellCall> GpuBackend::poll() {
  calls_.clear();
  for (GpuGroup* group : groups_->all) {
    if (group->closed) continue;
    for (GpuMember& member : group->members) {
      if (!member.active) continue;
      Doorbell doorbell = member.doorbells.launched();
      if (doorbell.number == member.taken) continue;
      // What was launched speculatively ends without the worker: later calls may have come to the
      // doorbell before that one was seen there.
      if (doorbell.number - member.taken - 2 < Speculation::kMost) {
        for (const SpeculativeLaunch& launch : group->speculation.launched) {
          if (launch.gate.number == member.taken + 1)
            doorbell = doorbell_from(launch.gate.word(member.rank));
        }
      }
      const bool in_order = doorbell.number == member.taken + 1;
      member.active = in_order;
      member.taken = doorbell.number;
      calls_.push_back({member.session, member.id, doorbell, in_order});
    }
  }
  if (!calls_.empty()) watch_.moved(now_ns());
  return calls_;
}

NetworkExecutor* GpuBackend::span_nodes(Links& links, const OfferedData& offered) {
  Result<std::unique_ptr<GpuNetwork>> network =
      GpuNetwork::create(*groups_, buffers_, links, staging_);
  if (!network) {
    log::warn("communicators of GPUs cannot span nodes: {}", network.error().message);
    return nullptr;
  }
  network_ = std::move(network).value();
  network_->use_early(early_ns_);
  offered_ = &offered;
  return network_.get();
}

void GpuBackend::stop(Communicator& communicator) {
  executor_.stop(communicator);
  if (network_ != nullptr) network_->stop(communicator);
  if (GpuGroup* group = gpus_of(communicator))
    groups_->close(*group, done_of(communicator.revoked));
}

std::span<const PathFailure> GpuBackend::tend(std::uint64_t now_ns) {
  measurements_.tend();
  Speculator& speculator = groups_->speculator;
  speculator.make_way(now_ns);
  const Speculator::Counts counts = speculator.take_counts();
  if (counts.hits != 0) metrics_.speculative_hits.add(counts.hits);
  if (counts.misses != 0) metrics_.speculative_misses.add(counts.misses);
  // Also while nobody uses a GPU: under MPS anybody's kernel may break it, and the next client must
  // not be the one to find out.
  if (now_ns >= asked_health_ns_ + kHealthNs) {
    asked_health_ns_ = now_ns;
    for (GpuEngine& engine : groups_->engines) engine.look_at_health();
    defer_abandoned(false);
  }
  for (GpuGroup* group : groups_->all) speculator.look_at(*group, now_ns);
  const std::uint64_t before = operations_elsewhere();
  const std::span<const PathFailure> failures = watch_.look(now_ns);
  for (GpuEngine& engine : groups_->engines)
    engine.tend_grid(now_ns, lease_ns_, groups_->turn,
                     [&] { speculator.withdraw_all(groups_->turn, kMomentNs); });
  groups_->slots.tend(now_ns);  // before what needs them is started
  groups_->quiescer.tend(now_ns);
  if (const std::uint64_t now = operations_elsewhere(); now != before)
    metrics_.operations[ErrorCode::Ok].add(now - before);
  return failures;
}

std::uint64_t GpuBackend::operations_elsewhere() const {
  std::uint64_t sum = 0;
  for (const GpuEngine& engine : groups_->engines) sum += engine.operations_elsewhere;
  return sum;
}

std::uint64_t GpuBackend::rest_ns(std::uint64_t now_ns) const {
  if (!network_is_idle()) return 0;
  if (groups_->all.empty()) return groups_->deferred.empty() ? ~std::uint64_t{0} : kLongestNapNs;
  for (const Nap& nap : kNaps) {
    if (now_ns < watch_.moved_ns() + nap.before_ns) return nap.nap_ns;
  }
  return kLongestNapNs;
}

Result<BufferId> GpuBackend::add_buffer(SessionId session, BufferSpec& spec) {
  const MemoryHandle& handle = spec.handle;
  const bool is_by_ipc = handle.kind == MemoryKind::CudaIpc;
  if (!spec.memory && !is_by_ipc && spec.chunks.empty()) {
    return error(ErrorCode::InvalidArgument, Reason::BadValue,
                 "GPU memory is registered by a descriptor, a CUDA IPC handle or its pieces: none "
                 "of these came");
  }
  if (is_by_ipc && !cuda_ipc_) {
    return error(ErrorCode::FailedPrecondition, Reason::Unsupported,
                 "memory of cudaMalloc is shared by CUDA IPC, which this daemon does not take "
                 "(gpu.cuda_ipc = false): use arcMemAlloc, or memory of cuMemCreate with a "
                 "shareable handle (PyTorch: PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True)");
  }
  Result<GpuEngine*> engine = groups_->find_gpu(spec.device);
  if (!engine) return std::move(engine).error();
  const QuiesceGuard guard(groups_->quiescer);
  if (!guard.status()) return guard.status().error();
  Device& device = (*engine)->device();
  Memory memory;
  Status imported = spec.chunks.empty() ? device.import(handle, spec.memory.get(), memory)
                                        : device.import_chunks(spec.chunks, handle.offset_bytes,
                                                               handle.length_bytes, memory);
  if (memory) memory.keep(spec.token);
  if (imported) return buffers_.add(session, std::move(memory), (*engine)->ordinal());
  // A part that was mapped would wait here for a kernel that finds no room to clear memory.
  if (memory) groups_->deferred.add(std::move(memory));
  return std::move(imported).error();
}

Result<AllocatedBuffer> GpuBackend::allocate_buffer(SessionId session, const AllocationSpec& spec) {
  if (spec.bytes == 0)
    return error(ErrorCode::InvalidArgument, Reason::BadValue, "0 bytes cannot be allocated");
  Result<GpuEngine*> engine = groups_->find_gpu(spec.device);
  if (!engine) return std::move(engine).error();
  measurements_.end();  // clients come first
  Result<Memory> memory = Memory{};
  ARC_RETURN_IF_ERROR(groups_->quiescer.quiesced(
      [&] { memory = (*engine)->device().allocate_for(spec.token, spec.bytes); }));
  if (!memory) return std::move(memory).error();
  Result<UniqueFd> descriptor = memory->export_fd();
  if (!descriptor) {
    groups_->deferred.add(std::move(memory).value());
    return std::move(descriptor).error();
  }
  const std::uint64_t length = memory->bytes();
  const BufferId buffer = buffers_.add(session, std::move(memory).value(), (*engine)->ordinal());
  return AllocatedBuffer{buffer, std::move(descriptor).value(), length};
}

void GpuBackend::release(RemovedBuffer removed) {
  if (removed.memory) groups_->deferred.add(std::move(removed.memory));
}

void GpuBackend::defer_abandoned(bool is_needed) {
  for (const GpuEngine& engine : groups_->engines) {
    for (Memory& memory : engine.device().take_abandoned(is_needed))
      groups_->deferred.add(std::move(memory));
  }
}

Result<Backend::Released> GpuBackend::keeps_released() {
  defer_abandoned(true);
  const DeferredRelease& deferred = groups_->deferred;
  if (deferred.empty()) {
    const auto late = std::ranges::find_if(groups_->engines, [](const GpuEngine& engine) {
      return engine.device().keeps_uncleared();
    });
    const bool is_none = late == groups_->engines.end();
    switch (looks_at_uncleared_.look(is_none, now_ns())) {
      case LettingGo::May:
        return Released::None;
      case LettingGo::NotYet:  // the last zeros may be on their way, or who waits about to give up
        return Released::NotYet;
      case LettingGo::Blocked:
        break;
    }
    return clears_late(*late);
  }
  if (const Status stuck = deferred.stuck(now_ns()); !stuck) return stuck.error();
  measurements_.end();  // clients come first
  switch (groups_->quiescer.look_at_letting_go(now_ns())) {
    case LettingGo::May:
      return Released::WouldGo;
    case LettingGo::NotYet:
      return Released::NotYet;
    case LettingGo::Blocked:
      break;
  }
  return other_work_fills();
}

Result<bool> GpuBackend::let_go_of_released() {
  const DeferredRelease& deferred = groups_->deferred;
  if (deferred.empty()) return true;
  const std::uint64_t before = deferred.gone();
  ARC_RETURN_IF_ERROR(groups_->quiescer.quiesced([] {}));  // and lets go of it behind that
  if (deferred.gone() != before) return deferred.empty();
  if (const Status stuck = deferred.stuck(now_ns()); !stuck) return stuck.error();
  // Else in another turn: what is in the way passes.
  if (groups_->quiescer.look_at_letting_go(now_ns()) == LettingGo::Blocked)
    return other_work_fills();
  return false;
}

Status GpuBackend::bind(PlanId id, PersistentPlan& plan, const CheckedRange& send,
                        const CheckedRange& recv) {
  if (id.index >= kMaxDevicePlans) {
    return error(ErrorCode::ResourceExhausted, Reason::Quota, kMaxDevicePlans,
                 " plans exist, the most that GPUs can tell apart: destroy one first");
  }
  Rank rank = kNoRank;
  GpuGroup* group = groups_->find_group(plan.member, rank);
  if (group == nullptr) return {};  // it is over: nothing of the plan will start
  GpuMember& member = group->member(rank);
  for (const CheckedRange* range : {&send, &recv}) {
    if (range->buffer == nullptr || range->buffer->gpu == member.engine->ordinal()) continue;
    return error(ErrorCode::InvalidArgument, Reason::BadValue, range == &send ? "send" : "recv",
                 " lies on another GPU than rank ", global_rank(*group, rank),
                 " of the communicator: use memory of that rank's GPU");
  }
  if (plan.timeout_ns == 0) plan.timeout_ns = default_timeout_ns_;
  plan.timeout_ns = std::min(plan.timeout_ns, max_timeout_ns_);
  const Launch launch = group->launches.find(launch_key_of(plan.signature));
  if (launch.path != LaunchPath::Resident) {
    ARC_RETURN_IF_ERROR(can_launch(group->launches, plan.signature, group->why_no_codecs));
    groups_->slots.want(*group, plan.signature);
    return {};
  }
  ARC_RETURN_IF_ERROR(ResidentPath::set_plan(id, member, plan));
  plan.resident_on = static_cast<int>(member.engine - groups_->engines.data());
  member.budget_ns = std::max(member.budget_ns, plan.timeout_ns);
  return {};
}

Status GpuBackend::unbind(PlanId id, const PersistentPlan& plan) {
  Rank rank = kNoRank;
  GpuGroup* group = groups_->find_group(plan.member, rank);
  const auto is_of_plan = [&](const SpeculativeLaunch& launch) {
    return launch.gate.plans[static_cast<std::size_t>(rank)] == id;
  };
  if (group != nullptr && std::ranges::any_of(group->speculation.launched, is_of_plan))
    groups_->speculator.withdraw(*group, kMomentNs);
  if (plan.resident_on < 0) return {};
  GpuEngine& engine = groups_->engines[static_cast<std::size_t>(plan.resident_on)];
  return groups_->resident.clear_plan(id, plan, engine, group, rank);
}

void GpuBackend::unbind_all(std::span<const PlanId> plans) {
  const auto unbind_each = [&] {
    for (const PlanId id : plans) {
      const PersistentPlan* held = plans_.find(id);
      if (held == nullptr) continue;
      if (const Status unbound = unbind(id, *held); !unbound)
        log::error("a plan of a session that is gone: {}", unbound.error().to_string());
    }
  };
  const bool is_in_a_grid = std::ranges::any_of(plans, [this](PlanId id) {
    const PersistentPlan* held = plans_.find(id);
    return held != nullptr && held->resident_on >= 0;
  });
  if (!is_in_a_grid) return unbind_each();
  // One quiescing for all plans. Where it fails: no later member can start them, and their
  // memory waits for one.
  const Status quiesced = groups_->quiescer.quiesced(unbind_each);
  if (!quiesced) log::warn("plans of a session that is gone: {}", quiesced.error().message);
}

Result<bool> GpuBackend::form(const CommunicatorSpec& spec,
                              std::unique_ptr<CommunicatorExtension>& made) {
  measurements_.end();  // clients come first
  std::unique_ptr<GpuGroup> group(static_cast<GpuGroup*>(made.release()));
  Result<bool> is_whole = groups_->make(
      spec, [this](const LaunchFacts& facts) { return planner_.make_table(facts); }, group);
  made = std::move(group);
  return is_whole;
}

void GpuBackend::leave(Communicator& communicator, Rank rank) {
  GpuGroup& group = *gpus_of(communicator);
  const Rank local = local_rank(communicator, rank);
  groups_->retire(group, local);
  const Failure left = make_failure(ErrorCode::Aborted, Reason::RemoteAborted, rank, "%s", "");
  groups_->end_after_leave(group, local, done_of(left));
}

void GpuBackend::abort(Communicator& communicator, Rank rank) {
  groups_->retire(*gpus_of(communicator), local_rank(communicator, rank));
}

bool GpuBackend::shut_down() {
  const std::uint64_t now = now_ns();
  if (shutting_down_ns_ == 0) shutting_down_ns_ = now;
  measurements_.end();
  bool is_over = true;
  {
    const QuiesceGuard guard(groups_->quiescer);
    for (const GpuEngine& engine : groups_->engines) {
      const Status flushed = engine.launcher().flush(groups_->turn.left(now_ns(), kLastFlushNs));
      is_over &= flushed || flushed.error().code != ErrorCode::DeadlineExceeded;
    }
  }
  is_over &= groups_->deferred.empty();
  return is_over || lost() || now >= shutting_down_ns_ + kShutDownNs;
}

}  // namespace arcomm
