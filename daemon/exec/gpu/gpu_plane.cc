#include "daemon/exec/gpu/gpu_plane.h"

#include <sched.h>

#include <algorithm>

#include "daemon/exec/clock.h"
#include "daemon/telemetry/log/log.h"
#include "transport/device/device.h"

namespace arcomm {
namespace {

// A grid that was launched while another's kernel fills the GPU leaves only after that one has
// ended.
constexpr auto kPauseTimeout = std::chrono::seconds(3);
constexpr auto kFlushTimeout = std::chrono::seconds(1);
constexpr std::uint64_t kWithdrawNs = 100'000'000;   // microseconds where nothing is wrong
constexpr std::uint64_t kDeferNs = 5'000'000;        // what goes together shares one quiesce
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
constexpr std::uint64_t kHealthNs = 50'000'000;
constexpr std::uint64_t kPatienceNs =
    1'000'000'000;  // beyond a plan's timeout, which the grid keeps

}  // namespace

Result<std::unique_ptr<GpuPlane>> GpuPlane::create(const std::vector<Device*>& gpus,
                                                   const OpenGpu& open, const Settings& settings) {
  std::unique_ptr<GpuPlane> plane(new GpuPlane());
  plane->use_settings(settings);
  for (Device* device : gpus) {
    Result<GpuHardware> hardware = open ? open(*device) : open_gpu(*device);
    if (!hardware) return std::move(hardware).error();
    Gpu gpu{.device = device,
            .hardware = std::move(hardware).value(),
            .free_words = {},
            .free_queues = {}};
    const std::size_t words = gpu.hardware.launcher->words().size();
    for (std::size_t i = words; i > 0; --i)
      gpu.free_words.push_back(static_cast<std::uint32_t>(i - 1));
    for (std::uint32_t queue = gpu.hardware.launcher->own_queues(); queue > 0; --queue)
      gpu.free_queues.push_back(queue);
    plane->gpus_.push_back(std::move(gpu));
  }
  plane->try_lines();
  if (!plane->gpus_.empty()) {
    // The same for all of them.
    Result<InStreamImage> image =
        InStreamImage::create(plane->gpus_.front().hardware.in_stream_image);
    if (!image) return std::move(image).error();
    plane->in_stream_image_ = std::move(image).value();
  }
  return plane;
}

Status GpuPlane::launch(GpuGroup& group, std::uint32_t parity, CudaAlgorithm algorithm,
                        std::span<const CudaAllReduce> calls, std::uint64_t& launched) {
  launched = 0;
  if (entry_of(algorithm).launches_all_ranks && calls[0].count != 0) {
    std::array<JointPart, kMaxGpuRanks> parts;
    for (std::size_t rank = 0; rank < calls.size(); ++rank) {
      const GpuMember& member = group.members[rank];
      parts[rank] = {&launcher(member), member.queue, &calls[rank]};
      launched |= std::uint64_t{1} << rank;
    }
    return launcher(group.members[0])
        .launch_together(std::span(parts).first(calls.size()), parity, algorithm);
  }
  for (std::size_t rank = 0; rank < calls.size(); ++rank) {
    const GpuMember& member = group.members[rank];
    Status done = launcher(member).launch(member.queue, parity, algorithm, calls[rank]);
    if (!done) {
      Error why = done.error();
      why.message = "rank " + std::to_string(rank) + ": " + why.message;
      return why;
    }
    launched |= std::uint64_t{1} << rank;
  }
  return {};
}

GpuPlane::~GpuPlane() {
  shut_down();
  // What a stuck GPU may still use is the driver's to take back, when the process ends.
  // NOLINTNEXTLINE(bugprone-unhandled-exception-at-new): without memory the daemon ends here too
  static auto* const kept = new std::vector<std::vector<DeferredRelease>>();
  if (!deferred_.empty()) kept->push_back(std::move(deferred_));
}

void GpuPlane::use_settings(const Settings& settings) {
  // Without residence each burst of operations brings the grid and takes it away again.
  in_stream_ = settings.gpu.in_stream;
  lease_ns_ = settings.gpu.resident ? settings.gpu.lease_ms * 1'000'000 : 0;
  const std::uint64_t before_ns = std::exchange(
      speculation_lease_ns_, settings.gpu.speculative ? settings.gpu.lease_ms * 1'000'000 : 0);
  if (speculation_lease_ns_ == before_ns) return;
  for (GpuGroup* group : groups_) {  // what is prepared has the old lifetime
    group->prepared.drop_all();
    release_dropped_later(*group);
  }
}

Result<std::size_t> GpuPlane::find_gpu(const std::string& name) const {
  if (name.empty()) return std::size_t{0};
  std::string known;
  for (std::size_t i = 0; i < gpus_.size(); ++i) {
    const std::string here = gpus_[i].device->name();
    if (here == name) return i;
    known += (i == 0 ? "" : ", ") + here;
  }
  return error(ErrorCode::NotFound, Reason::BadValue, "no GPU \"", name,
               "\" is served here; there are ", known);
}

Result<Memory> GpuPlane::allocate(std::size_t gpu, std::uint64_t bytes) {
  const QuiesceGuard quiesce(*this);
  if (!quiesce.status()) return quiesce.status().error();
  return gpus_[gpu].device->allocate(bytes);
}

Result<Memory> GpuPlane::import(std::size_t gpu, const BufferSpec& seed) {
  MemoryHandle handle;
  handle.kind = seed.handle ? MemoryKind::CudaIpc : MemoryKind::PosixFd;
  handle.offset_bytes = seed.offset_bytes;
  handle.length_bytes = seed.length_bytes;
  handle.allocation_bytes = seed.allocation_bytes;
  if (seed.handle) handle.opaque = *seed.handle;
  const QuiesceGuard quiesce(*this);
  if (!quiesce.status()) return quiesce.status().error();
  Device& device = *gpus_[gpu].device;
  if (!seed.chunks.empty())
    return device.import_chunks(seed.chunks, seed.offset_bytes, seed.length_bytes);
  return device.import(handle, seed.memory.get());
}

void GpuPlane::release_later(Memory memory) {
  DeferredRelease deferred;
  deferred.memory[0] = std::move(memory);
  deferred_.push_back(std::move(deferred));
  if (first_deferred_ns_ == 0) first_deferred_ns_ = now_ns();
}

GpuPlane::QuiesceGuard::QuiesceGuard(GpuPlane& plane) : plane_(plane) {
  for (GpuGroup* group : plane_.groups_) {
    if (group->running.number != 0) plane_.open(*group, group->running);
  }
  const std::uint64_t until = now_ns() + kWithdrawNs;
  bool quiet = true;
  for (GpuGroup* group : plane_.groups_) {
    const std::uint64_t now = now_ns();
    quiet = plane_.withdraw(*group, now < until ? until - now : 0) && quiet;
  }
  while (quiet && !plane_.deferred_are_idle()) {
    quiet = now_ns() < until;
    ::sched_yield();
  }
  if (!quiet) {
    status_ = error(ErrorCode::Unavailable, Reason::None,
                    "a GPU has not come to what was launched on it within ",
                    kWithdrawNs / 1'000'000, " ms: other work keeps it busy; try again");
    return;
  }
  for (std::size_t i = 0; i < plane_.gpus_.size(); ++i) {
    Gpu& gpu = plane_.gpus_[i];
    if (!gpu.hardware.grid->running()) continue;
    Status paused = plane_.pause(gpu);
    if (!paused) {
      status_ = std::move(paused);
      return;
    }
    stopped_.push_back(i);
  }
}

GpuPlane::QuiesceGuard::~QuiesceGuard() {
  if (status_) plane_.release_deferred();
  for (const std::size_t gpu : stopped_) plane_.resume(plane_.gpus_[gpu]);
}

Status GpuPlane::pause(Gpu& gpu) {
  if (gpu.broken) {
    return error(ErrorCode::Internal, Reason::None, gpu.device->name(),
                 " does not answer: see the daemon's log");
  }
  Status paused = gpu.hardware.grid->pause(kPauseTimeout);
  if (paused) return paused;
  gpu.broken = true;
  log::error("{}: its resident kernel does not leave: {}", gpu.device->name(),
             paused.error().message);
  return paused;
}

void GpuPlane::resume(Gpu& gpu) {
  if (gpu.broken) return;
  const Status resumed = gpu.hardware.grid->resume();
  if (resumed) return;
  gpu.broken = true;
  log::error("{}: its resident kernel does not start: {}", gpu.device->name(),
             resumed.error().message);
}

void GpuPlane::drop_slot(GpuMember& member) {
  if (member.slot == kNoSlot) return;
  const std::uint32_t done = grid(member).status(member.slot).done;
  resident_done_ += static_cast<std::uint32_t>(done - member.done);
  member.done = done;
  if (const Status removed = grid(member).remove_member(member.slot); !removed) {
    // The grid would look at memory that is let go: rather no grid at all.
    gpus_[member.gpu].broken = true;
    log::error("{}: a rank's place in its resident kernel is not given back: {}",
               gpus_[member.gpu].device->name(), removed.error().message);
  }
  member.slot = kNoSlot;
}

bool GpuPlane::deferred_are_idle() {
  // A queue that answers with an error holds nothing up any more.
  const auto is_quiet = [this](std::size_t gpu, std::uint32_t queue) {
    if (queue == 0) return true;
    const Result<bool> idle = gpus_[gpu].hardware.launcher->idle(queue);
    return !idle || *idle;
  };
  return std::all_of(deferred_.begin(), deferred_.end(), [&](const DeferredRelease& deferred) {
    return is_quiet(deferred.gpu, deferred.queue) &&
           std::all_of(deferred.prepared_for.begin(), deferred.prepared_for.end(),
                       [&](const auto& place) { return is_quiet(place.first, place.second); });
  });
}

void GpuPlane::release_deferred() {
  // A departed session's memory may go only when nothing that could use it is left.
  for (GpuGroup* group : groups_) {
    for (GpuMember& member : group->members) {
      if (group->closed) drop_slot(member);
    }
  }
  if (deferred_.empty()) return;
  for (Gpu& gpu : gpus_) {
    const Status flushed = gpu.hardware.launcher->flush(kFlushTimeout);
    if (flushed) continue;
    log::error("{}: memory is kept, as what was stored there did not arrive: {}",
               gpu.device->name(), flushed.error().message);
    first_deferred_ns_ = now_ns() + kPatienceNs;
    return;
  }
  for (const DeferredRelease& deferred : deferred_) {
    if (deferred.slot != kNoSlot) {
      Gpu& gpu = gpus_[deferred.gpu];
      if (const Status removed = gpu.hardware.grid->remove_member(deferred.slot); !removed) {
        gpu.broken = true;
        log::error("{}: a rank's place in its resident kernel is not given back: {}",
                   gpu.device->name(), removed.error().message);
        return;
      }
    }
    if (deferred.words != kNoSlot) gpus_[deferred.gpu].free_words.push_back(deferred.words);
    if (deferred.queue != 0) gpus_[deferred.gpu].free_queues.push_back(deferred.queue);
  }
  deferred_.clear();
  first_deferred_ns_ = 0;
}

bool GpuPlane::lost() const {
  return std::any_of(gpus_.begin(), gpus_.end(), [](const Gpu& gpu) { return gpu.broken; });
}

// An error sticks to the process: whichever call meets it first.
void GpuPlane::look_at_health(std::uint64_t now_ns) {
  if (now_ns < asked_health_ns_ + kHealthNs) return;
  asked_health_ns_ = now_ns;
  for (Gpu& gpu : gpus_) {
    if (gpu.broken) continue;
    const Status health = gpu.hardware.launcher->health();
    if (health) continue;
    gpu.broken = true;
    log::error("{} has failed: {}", gpu.device->name(), health.error().message);
  }
}

bool GpuPlane::look_at_in_stream(GpuGroup& group, GpuMember& member, std::uint64_t now_ns) {
  if (!member.active || group.closed) return true;
  const std::uint32_t begun = member.doorbells.in_stream_begun();
  if (begun != member.in_stream_begun) {
    resident_done_ += static_cast<std::uint32_t>(begun - member.in_stream_begun);
    if (now_ns >= member.in_stream_begun_ns + kStandingNs) {
      member.in_stream_stood_at = member.in_stream_begun;
      member.in_stream_stood_until_ns = now_ns;
    }
    member.in_stream_begun = begun;
    member.in_stream_begun_ns = now_ns;
    // They need no worker; but what they are mixed with should not find it in its longest naps.
    moved_ns_ = std::max(moved_ns_, now_ns - std::min(now_ns, kSpinNs + kShortNapsNs));
  }
  Done failed = member.doorbells.in_stream_failed();
  if (failed.code == 0) return true;
  // Whatever a client writes there, it is no more than that.
  if (failed.culprit_rank < 0 ||
      failed.culprit_rank >= static_cast<std::int16_t>(group.members.size()))
    failed.culprit_rank = static_cast<std::int16_t>(member.rank);
  failures_.push_back({group.communicator, member.rank, failed, true});
  return false;
}

bool GpuPlane::look_at(GpuGroup& group, std::uint64_t now_ns) {
  bool even = true;  // no resident operation that others have ended is open
  for (GpuMember& member : group.members) {
    Gpu& gpu = gpus_[member.gpu];
    if (gpu.broken && !group.closed) {
      failures_.push_back({group.communicator, member.rank,
                           Done{.code = static_cast<std::uint8_t>(ErrorCode::Internal)}});
      return false;
    }
    if (group.is_in_stream() && !look_at_in_stream(group, member, now_ns)) return false;
    if (member.slot == kNoSlot) continue;
    const ResidentStatus status = grid(member).status(member.slot);
    const std::uint32_t posted = member.active ? member.doorbells.resident_posted() : member.posted;
    if (posted != member.posted || status.done != member.done) {
      resident_done_ += static_cast<std::uint32_t>(status.done - member.done);
      member.posted = posted;
      member.done = status.done;
      member.changed_ns = gpu.changed_ns = moved_ns_ = now_ns;
    }
    if (group.closed) continue;
    if (status.failed.code != 0) {
      failures_.push_back({group.communicator, member.rank, status.failed});
      return false;
    }
    if (member.active && posted != status.done &&
        now_ns < member.changed_ns + member.patience_ns + kPatienceNs) {
      gpu.wanted = true;
    }
    even &= !member.active || reached(status.done, group.ends_after);
  }
  return even;
}

const std::vector<GpuPlane::ResidentFailure>& GpuPlane::tend(std::uint64_t now_ns) {
  failures_.clear();
  for (Gpu& gpu : gpus_) gpu.wanted = false;
  // Also while nobody uses a GPU: under MPS anybody's kernel may break it, and the next client must
  // not be the one to find out.
  look_at_health(now_ns);
  for (GpuGroup* group : groups_) {
    look_at_speculation(*group, now_ns);
    const bool even = look_at(*group, now_ns);
    if (!group->ending || group->closed || !even) continue;
    const ArrivalBoard& board = group->communicator->board;
    if (board.size() == board.failed()) close(*group, *group->ending);
  }
  for (Gpu& gpu : gpus_) {
    if (gpu.broken) continue;
    const bool running = gpu.hardware.grid->running();
    if (gpu.wanted && !running) {
      // It needs room, which kernels that wait for their ranks would not leave it.
      for (GpuGroup* group : groups_) withdraw(*group, kMomentNs);
      resume(gpu);
    } else if (running && !gpu.wanted && now_ns >= gpu.changed_ns + lease_ns_) {
      static_cast<void>(pause(gpu));
    }
  }
  if (!deferred_.empty() && now_ns >= first_deferred_ns_ + kDeferNs) {
    const QuiesceGuard quiesce(*this);
    // Each try holds up all tenants: not again at once.
    if (!quiesce.status()) first_deferred_ns_ = now_ns + kPatienceNs;
  }
  return failures_;
}

std::uint64_t GpuPlane::rest_ns(std::uint64_t now_ns) const {
  if (groups_.empty()) return deferred_.empty() ? ~std::uint64_t{0} : kDeferNs;
  for (const Nap& nap : kNaps) {
    if (now_ns < moved_ns_ + nap.before_ns) return nap.nap_ns;
  }
  return kLongestNapNs;
}

void GpuPlane::shut_down() {
  const QuiesceGuard quiesce(*this);
  for (Gpu& gpu : gpus_) static_cast<void>(gpu.hardware.launcher->flush(kFlushTimeout));
}

}  // namespace arcomm
