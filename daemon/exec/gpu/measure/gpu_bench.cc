#include "daemon/exec/gpu/measure/gpu_bench.h"

#include <algorithm>
#include <string>
#include <utility>

#include "daemon/exec/clock.h"
#include "daemon/plan/gpu_planner.h"
#include "daemon/plan/tuning/gpu_tuning_table.h"
#include "daemon/telemetry/log/log.h"
#include "transport/device/device.h"

namespace arcomm {
namespace {

constexpr DType kType = kTrialType;
constexpr std::uint64_t kLeastRoomBytes = 1024;
constexpr std::uint64_t kRoundNs = 5'000'000;
constexpr int kRounds = 5;
constexpr std::uint32_t kFirstTimes = 3;
// Launches that wait in a queue: far fewer than a queue takes.
constexpr std::uint32_t kFewestTimes = 2, kMostTimes = 64;
// Each is dozens of entries.
constexpr std::uint32_t kMostJointTimes = 8;
constexpr std::uint64_t kWaitNs = 2'000'000'000;
constexpr std::uint64_t kGiveUpNs = 1'000'000'000;
// Of a turn: what ends meanwhile is seen at once, as the clock wants it; clients come between.
constexpr std::uint64_t kWatchNs = 20'000'000;
constexpr std::uint64_t kTakeNs = 10'000'000;

}  // namespace

Result<std::unique_ptr<GpuBench>> GpuBench::create(GpuGroups& groups, std::uint32_t ranks,
                                                   std::uint64_t room_bytes) {
  const std::size_t gpus = groups.engines.size();
  if (ranks < 2 || ranks > gpus) {
    return error(ErrorCode::InvalidArgument, Reason::BadValue, "cannot measure ", ranks,
                 " ranks on ", gpus, " GPUs: 2 to ", gpus, " can be");
  }
  return std::unique_ptr<GpuBench>(new GpuBench(groups, ranks, room_bytes));
}

GpuBench::GpuBench(GpuGroups& groups, std::uint32_t ranks, std::uint64_t room_bytes)
    : groups_(groups), room_bytes_(std::max(room_bytes, kLeastRoomBytes)) {
  std::vector<std::string> names;  // this process has them all
  for (std::uint32_t rank = 0; rank < ranks; ++rank) names.push_back(groups.engines[rank].name());
  for (std::uint32_t rank = 0; rank < ranks; ++rank) {
    spec_.ranks.push_back({.session = {},
                           .rank = static_cast<Rank>(rank),
                           .device = names[rank],
                           .visible_gpus = names});
  }
}

Result<std::optional<std::uint64_t>> GpuBench::prepare() {
  using Room = std::optional<std::uint64_t>;
  const QuiesceGuard guard(groups_.quiescer);
  if (!guard.status()) return guard.status().error();
  if (!launches_) {
    const Result<bool> made = groups_.make(spec_, make_launch_table, group_);
    if (!made) return made.error();
    if (!*made) return Room();
    launches_.emplace(*group_, buffers_);
    groups_.quiescer.measured = group_.get();
    buffers_.resize(ranks());
    group_->slots = GpuGroup::Slots::Wanted;
  }
  if (group_->slots == GpuGroup::Slots::Wanted && !groups_.slots.take(*group_)) return Room();
  const Status taken = take_buffers();
  if (taken) return has_buffers() ? Room(room_bytes_) : Room();
  if (taken.error().code == ErrorCode::Unavailable || room_bytes_ / 4 < kLeastRoomBytes)
    return taken.error();
  room_bytes_ /= 4;
  return_buffers();  // they are needed for the next try
  return Room();
}

GpuBench::~GpuBench() {
  groups_.quiescer.measured = nullptr;
  if (stuck_) {
    // What a stuck GPU may still use is the driver's to take back, when the process ends.
    // NOLINTNEXTLINE(bugprone-unhandled-exception-at-new): without memory the daemon ends here too
    static auto* const kept = new std::vector<std::pair<std::vector<TrialBuffers>, GpuGroup*>>();
    kept->emplace_back(std::move(buffers_), group_.release());
    return;
  }
  if (is_busy()) stop();  // its memory goes when its queues are empty
  group_.reset();
  return_buffers();
}

bool GpuBench::has_buffers() const {
  return std::ranges::all_of(
      buffers_, [](const TrialBuffers& of_rank) { return of_rank.send && of_rank.recv; });
}

// As many as the turn has time for.
Status GpuBench::take_buffers() {
  const std::uint64_t until = groups_.turn.until_ns(now_ns(), kTakeNs);
  for (const GpuMember& member : group_->members) {
    TrialBuffers& of_rank = buffers_[static_cast<std::size_t>(member.rank)];
    for (Memory* place : {&of_rank.send, &of_rank.recv}) {
      if (*place) continue;
      if (now_ns() >= until) return {};
      Result<Memory> memory = member.engine->device().allocate(room_bytes_);
      if (!memory) return std::move(memory).error();
      *place = std::move(memory).value();
    }
  }
  return {};
}

void GpuBench::return_buffers() {
  for (TrialBuffers& of_rank : buffers_) {
    if (of_rank.send) groups_.deferred.add(std::exchange(of_rank.send, {}));
    if (of_rank.recv) groups_.deferred.add(std::exchange(of_rank.recv, {}));
  }
}

Status GpuBench::can_measure(const GpuMeasurement& what) const {
  if (what.algorithm) ARC_RETURN_IF_ERROR(can_launch(*what.algorithm, what.bytes, ranks()));
  if (failed_) {
    return error(ErrorCode::Aborted, Reason::Revoked,
                 "a kernel has failed here: measure in a set of ranks made anew");
  }
  if (what.algorithm && !can_run(*what.algorithm, group_->abilities)) {
    return error(ErrorCode::OutOfRange, Reason::Unsupported, name_of(what.algorithm), ": ",
                 entry_of(*what.algorithm).needs_atomic_128b_stores
                     ? "stores of 128 bytes do not arrive whole between these GPUs"
                     : "not all of these GPUs are of the Hopper generation or later");
  }
  if (what.algorithm && entry_of(*what.algorithm).needs_slots &&
      group_->slots != GpuGroup::Slots::Here) {
    return error(ErrorCode::OutOfRange, Reason::Unsupported, name_of(*what.algorithm),
                 " needs slots that are not to be had: ", group_->why_no_slots);
  }
  if (!what.algorithm && launches_->shape_in_stream(what.bytes).blocks == 0) {
    return error(ErrorCode::OutOfRange, Reason::Unsupported, "nothing of ", what.bytes,
                 " bytes is in-stream between these GPUs");
  }
  if (what.bytes > room_bytes_ || what.bytes < size_of(kType)) {
    return error(ErrorCode::OutOfRange, Reason::BadValue, "cannot measure ", what.bytes,
                 " bytes: there is memory for ", room_bytes_);
  }
  return {};
}

Status GpuBench::begin(const GpuMeasurement& what) {
  ARC_RETURN_IF_ERROR(can_measure(what));
  what_ = what;
  rounds_.clear();
  times_ = kFirstTimes;
  Status filled = fill();
  if (filled) return filled;
  failed_ = true;
  stage_ = Stage::Idle;
  return filled;
}

Result<std::optional<double>> GpuBench::go_on() {
  const std::uint64_t until = now_ns() + kWatchNs;
  while (stage_ != Stage::Idle) {
    const Result<bool> stepped = step();
    if (!stepped && stage_ == Stage::Stopping) {
      stage_ = Stage::Idle;
      return stepped.error();
    }
    if (!stepped) {
      why_ = stepped.error();
      why_.message = std::string(name_of(what_.algorithm)) + " of " + std::to_string(what_.bytes) +
                     " bytes between " + std::to_string(ranks()) + " GPUs: " + why_.message;
      stop();
    } else if (!*stepped && now_ns() >= until) {
      return std::optional<double>();
    }
  }
  std::vector<std::uint64_t> timed(rounds_.end() - kRounds, rounds_.end());
  std::sort(timed.begin(), timed.end());
  return std::optional(std::max(static_cast<double>(timed[kRounds / 2]) / times_ / 1000.0, 0.001));
}

void GpuBench::enter(Stage stage, std::uint64_t limit_ns) {
  stage_ = stage;
  limit_ns_ = now_ns() + limit_ns;
}

Result<bool> GpuBench::step() {
  Result<bool> is_so_far = stage_ == Stage::Running ? launches_->have_ended() : are_idle();
  if (stage_ == Stage::Stopping) {
    // A queue in error holds nothing any more.
    if (!is_so_far || *is_so_far) return why_;
    if (now_ns() < limit_ns_) return false;
    stuck_ = true;
    log::error("a kernel that was measured does not end; its memory is kept");
    return why_;
  }
  if (!is_so_far) return is_so_far;
  if (!*is_so_far) {
    if (now_ns() < limit_ns_) return false;
    for (const GpuMember& member : group_->members) ARC_RETURN_IF_ERROR(member.launcher().health());
    return error(ErrorCode::DeadlineExceeded, Reason::Timeout,
                 stage_ == Stage::Running ? "it has" : "what fills and looks at the sums has",
                 " not ended within ", kWaitNs / 1'000'000, " ms");
  }
  Status went;
  switch (stage_) {
    case Stage::Filling:
      went = launch();
      break;
    case Stage::Running:
      took_ns_ = now_ns() - begun_ns_;
      went = check();
      break;
    case Stage::Checking:
      went = read_check();
      if (went) end_round();
      if (went && stage_ != Stage::Idle) went = fill();
      break;
    case Stage::Stopping:
    case Stage::Idle:
      break;
  }
  if (!went) return went.error();
  return true;
}

// The first two rounds say how many operations the others have.
void GpuBench::end_round() {
  rounds_.push_back(took_ns_);
  if (rounds_.size() == 1) {
    times_ = kFewestTimes;
  } else if (rounds_.size() == 2) {
    const std::uint64_t one_ns = std::max<std::uint64_t>(took_ns_ / kFewestTimes, 1);
    const bool joint = what_.algorithm && entry_of(*what_.algorithm).launches_all_ranks;
    times_ = static_cast<std::uint32_t>(std::clamp<std::uint64_t>(
        kRoundNs / one_ns, kFewestTimes, joint ? kMostJointTimes : kMostTimes));
  } else if (rounds_.size() == 2 + kRounds) {
    stage_ = Stage::Idle;
  }
}

TrialCall GpuBench::trial_of(const GpuMember& member, std::uint64_t bytes) const {
  const TrialBuffers& of_rank = buffers_[static_cast<std::size_t>(member.rank)];
  return {.send = of_rank.send.data(),
          .recv = of_rank.recv.data(),
          .wrong = &member.words().wrong,
          .count = bytes / size_of(kType),
          .seed = seed_,
          .rank = static_cast<std::uint32_t>(member.rank),
          .ranks = ranks()};
}

Status GpuBench::fill() {
  ++seed_;
  enter(Stage::Filling, kWaitNs);  // peers read the inputs without asking: first all are there
  for (const GpuMember& member : group_->members)
    ARC_RETURN_IF_ERROR(member.launcher().fill_trial(member.queue, trial_of(member, what_.bytes)));
  return {};
}

Status GpuBench::launch() {
  enter(Stage::Running, kWaitNs);
  const Result<std::uint64_t> begun = launches_->launch(what_, times_);
  if (!begun) return begun.error();
  begun_ns_ = *begun;
  return {};
}

Status GpuBench::check() {
  enter(Stage::Checking, kWaitNs);
  for (const GpuMember& member : group_->members) {
    __atomic_store_n(&member.words().wrong, 0, __ATOMIC_RELEASE);
    ARC_RETURN_IF_ERROR(member.launcher().check_trial(member.queue, trial_of(member, what_.bytes)));
  }
  return {};
}

Status GpuBench::read_check() const {
  for (const GpuMember& member : group_->members) {
    const std::uint64_t wrong = __atomic_load_n(&member.words().wrong, __ATOMIC_ACQUIRE);
    if (wrong == 0) continue;
    return error(ErrorCode::DataLoss, Reason::None, "rank ", member.rank, " has a wrong element ",
                 wrong - 1, " of ", what_.bytes / size_of(kType),
                 ": the kernel's code does not do here what it should");
  }
  return {};
}

Result<bool> GpuBench::are_idle() const {
  for (const GpuMember& member : group_->members) {
    Result<bool> idle = member.launcher().idle(member.queue);
    if (!idle || !*idle) return idle;
  }
  return true;
}

void GpuBench::stop() {
  failed_ = true;
  enter(Stage::Stopping, kGiveUpNs);
  const Done why{.code = static_cast<std::uint8_t>(ErrorCode::Aborted),
                 .reason = static_cast<std::uint8_t>(Reason::Revoked)};
  for (const GpuMember& member : group_->members) {
    GpuLauncher& launcher = member.launcher();
    static_cast<void>(launcher.abort(member.scratch.data()));
    static_cast<void>(launcher.store(&member.device_mailbox()->closed, to_word(why)));
  }
}

}  // namespace arcomm
