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
constexpr std::uint64_t kDisarmNs = 100'000'000;     // microseconds where nothing is wrong
constexpr std::uint64_t kGraveNs = 5'000'000;        // what goes together shares one standstill
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
    Result<DirectImage> image = DirectImage::create(plane->gpus_.front().hardware.direct_image);
    if (!image) return std::move(image).error();
    plane->direct_image_ = std::move(image).value();
  }
  return plane;
}

Status GpuPlane::launch(GpuGroup& group, std::uint32_t turn, CudaAlgorithm algorithm,
                        std::span<const CudaAllReduce> calls, std::uint64_t& launched) {
  launched = 0;
  if (entry_of(algorithm).is_joint && calls[0].count != 0) {
    std::array<JointPart, kMaxCudaRanks> parts;
    for (std::size_t rank = 0; rank < calls.size(); ++rank) {
      const GpuMember& member = group.members[rank];
      parts[rank] = {&launcher(member), member.queue, &calls[rank]};
      launched |= std::uint64_t{1} << rank;
    }
    return launcher(group.members[0])
        .launch_together(std::span(parts).first(calls.size()), turn, algorithm);
  }
  for (std::size_t rank = 0; rank < calls.size(); ++rank) {
    const GpuMember& member = group.members[rank];
    Status done = launcher(member).launch(member.queue, turn, algorithm, calls[rank]);
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
  static auto* const kept = new std::vector<std::vector<Grave>>();
  if (!graves_.empty()) kept->push_back(std::move(graves_));
}

void GpuPlane::use_settings(const Settings& settings) {
  // Without residence each burst of operations brings the grid and takes it away again.
  direct_ = settings.gpu.direct;
  lease_ns_ = settings.gpu.resident ? settings.gpu.lease_ms * 1'000'000 : 0;
  const std::uint64_t before_ns =
      std::exchange(ahead_lease_ns_, settings.gpu.armed ? settings.gpu.lease_ms * 1'000'000 : 0);
  if (ahead_lease_ns_ == before_ns) return;
  for (GpuGroup* group : groups_) {  // what is prepared has the old lifetime
    group->prepared.drop_all();
    bury_dropped(*group);
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
  const Standstill standstill(*this);
  if (!standstill.status()) return standstill.status().error();
  return gpus_[gpu].device->allocate(bytes);
}

Result<Memory> GpuPlane::import(std::size_t gpu, const BufferSeed& seed) {
  MemoryHandle handle;
  handle.kind = seed.handle ? MemoryKind::CudaIpc : MemoryKind::PosixFd;
  handle.offset_bytes = seed.offset_bytes;
  handle.length_bytes = seed.length_bytes;
  handle.allocation_bytes = seed.allocation_bytes;
  if (seed.handle) handle.opaque = *seed.handle;
  const Standstill standstill(*this);
  if (!standstill.status()) return standstill.status().error();
  Device& device = *gpus_[gpu].device;
  if (!seed.chunks.empty())
    return device.import_chunks(seed.chunks, seed.offset_bytes, seed.length_bytes);
  return device.import(handle, seed.memory.get());
}

void GpuPlane::bury(Memory memory) {
  Grave grave;
  grave.memory[0] = std::move(memory);
  graves_.push_back(std::move(grave));
  if (first_grave_ns_ == 0) first_grave_ns_ = now_ns();
}

GpuPlane::Standstill::Standstill(GpuPlane& plane) : plane_(plane) {
  for (GpuGroup* group : plane_.groups_) {
    if (group->running.number != 0) plane_.open(*group, group->running);
  }
  const std::uint64_t until = now_ns() + kDisarmNs;
  bool quiet = true;
  for (GpuGroup* group : plane_.groups_) {
    const std::uint64_t now = now_ns();
    quiet = plane_.disarm(*group, now < until ? until - now : 0) && quiet;
  }
  while (quiet && !plane_.graves_are_quiet()) {
    quiet = now_ns() < until;
    ::sched_yield();
  }
  if (!quiet) {
    status_ = error(ErrorCode::Unavailable, Reason::None,
                    "a GPU has not come to what was launched on it within ", kDisarmNs / 1'000'000,
                    " ms: other work keeps it busy; try again");
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

GpuPlane::Standstill::~Standstill() {
  if (status_) plane_.empty_graves();
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

bool GpuPlane::graves_are_quiet() {
  // A queue that answers with an error holds nothing up any more.
  const auto is_quiet = [this](std::size_t gpu, std::uint32_t queue) {
    if (queue == 0) return true;
    const Result<bool> idle = gpus_[gpu].hardware.launcher->idle(queue);
    return !idle || *idle;
  };
  return std::all_of(graves_.begin(), graves_.end(), [&](const Grave& grave) {
    return is_quiet(grave.gpu, grave.queue) &&
           std::all_of(grave.prepared_for.begin(), grave.prepared_for.end(),
                       [&](const auto& place) { return is_quiet(place.first, place.second); });
  });
}

void GpuPlane::empty_graves() {
  // A departed session's memory may go only when nothing that could use it is left.
  for (GpuGroup* group : groups_) {
    for (GpuMember& member : group->members) {
      if (group->closed) drop_slot(member);
    }
  }
  if (graves_.empty()) return;
  for (Gpu& gpu : gpus_) {
    const Status flushed = gpu.hardware.launcher->flush(kFlushTimeout);
    if (flushed) continue;
    log::error("{}: memory is kept, as what was stored there did not arrive: {}",
               gpu.device->name(), flushed.error().message);
    first_grave_ns_ = now_ns() + kPatienceNs;
    return;
  }
  for (const Grave& grave : graves_) {
    if (grave.slot != kNoSlot) {
      Gpu& gpu = gpus_[grave.gpu];
      if (const Status removed = gpu.hardware.grid->remove_member(grave.slot); !removed) {
        gpu.broken = true;
        log::error("{}: a rank's place in its resident kernel is not given back: {}",
                   gpu.device->name(), removed.error().message);
        return;
      }
    }
    if (grave.words != kNoSlot) gpus_[grave.gpu].free_words.push_back(grave.words);
    if (grave.queue != 0) gpus_[grave.gpu].free_queues.push_back(grave.queue);
  }
  graves_.clear();
  first_grave_ns_ = 0;
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

bool GpuPlane::look_at_direct(GpuGroup& group, GpuMember& member, std::uint64_t now_ns) {
  if (!member.active || group.closed) return true;
  const std::uint32_t begun = member.doors.direct_begun();
  if (begun != member.direct_begun) {
    resident_done_ += static_cast<std::uint32_t>(begun - member.direct_begun);
    if (now_ns >= member.direct_begun_ns + kStandingNs) {
      member.direct_stood_at = member.direct_begun;
      member.direct_stood_until_ns = now_ns;
    }
    member.direct_begun = begun;
    member.direct_begun_ns = now_ns;
    // They need no worker; but what they are mixed with should not find it in its longest naps.
    moved_ns_ = std::max(moved_ns_, now_ns - std::min(now_ns, kSpinNs + kShortNapsNs));
  }
  Done failed = member.doors.direct_failed();
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
    if (group.is_direct() && !look_at_direct(group, member, now_ns)) return false;
    if (member.slot == kNoSlot) continue;
    const ResidentStatus status = grid(member).status(member.slot);
    const std::uint32_t posted = member.active ? member.doors.resident_posted() : member.posted;
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
    look_ahead(*group, now_ns);
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
      for (GpuGroup* group : groups_) disarm(*group, kMomentNs);
      resume(gpu);
    } else if (running && !gpu.wanted && now_ns >= gpu.changed_ns + lease_ns_) {
      static_cast<void>(pause(gpu));
    }
  }
  if (!graves_.empty() && now_ns >= first_grave_ns_ + kGraveNs) {
    const Standstill standstill(*this);
    // Each try holds up all tenants: not again at once.
    if (!standstill.status()) first_grave_ns_ = now_ns + kPatienceNs;
  }
  return failures_;
}

std::uint64_t GpuPlane::rest_ns(std::uint64_t now_ns) const {
  if (groups_.empty()) return graves_.empty() ? ~std::uint64_t{0} : kGraveNs;
  for (const Nap& nap : kNaps) {
    if (now_ns < moved_ns_ + nap.before_ns) return nap.nap_ns;
  }
  return kLongestNapNs;
}

void GpuPlane::shut_down() {
  const Standstill standstill(*this);
  for (Gpu& gpu : gpus_) static_cast<void>(gpu.hardware.launcher->flush(kFlushTimeout));
}

}  // namespace arcomm
