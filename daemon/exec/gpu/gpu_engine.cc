#include "daemon/exec/gpu/gpu_engine.h"

#include <chrono>
#include <utility>

#include "daemon/exec/clock.h"
#include "daemon/telemetry/log/log.h"

namespace arcomm {
namespace {

// Microseconds where nothing is wrong; a few time slices where the GPU goes round among processes.
constexpr std::uint64_t kPauseNs = 30'000'000;
// What should take microseconds and has not happened for so long never will.
constexpr std::uint64_t kStuckNs = 3'000'000'000;
constexpr std::uint64_t kResumeAgainNs = 1'000'000;

}  // namespace

GpuEngine::GpuEngine(Device& device, GpuHardware hardware)
    : device_(&device), hardware_(std::move(hardware)) {
  for (std::size_t i = launcher().words().size(); i > 0; --i)
    free_completions_.push_back(static_cast<std::uint32_t>(i - 1));
  for (std::uint32_t queue = launcher().own_queues(); queue > 0; --queue)
    free_queues_.push_back(queue);
}

Result<std::uint32_t> GpuEngine::take_completion() {
  if (free_completions_.empty()) {
    return error(ErrorCode::ResourceExhausted, Reason::Quota, name(), " serves ",
                 launcher().words().size(), " ranks, the most it can: free a communicator first");
  }
  const std::uint32_t place = free_completions_.back();
  free_completions_.pop_back();
  completion(place) = RankCompletion{};
  return place;
}

std::uint32_t GpuEngine::take_queue() {
  if (free_queues_.empty()) return 0;
  const std::uint32_t queue = free_queues_.back();
  free_queues_.pop_back();
  return queue;
}

void GpuEngine::give_back(std::uint32_t completion, std::uint32_t queue) {
  if (completion != kNoSlot) free_completions_.push_back(completion);
  if (queue != 0) free_queues_.push_back(queue);
}

Status GpuEngine::pause(TurnBudget& turn) {
  constexpr std::chrono::nanoseconds kNow{0};
  if (broken_ && !grid().pause(kNow)) {
    return error(ErrorCode::Internal, Reason::None, name(),
                 " does not answer: see the daemon's log");
  }
  // Nobody waits again for what was waited for once: it is looked at.
  const auto timeout = late_since_ns_ == 0 ? turn.left(now_ns(), kPauseNs) : kNow;
  return in_time(grid().pause(timeout), "its resident kernel does not leave");
}

Status GpuEngine::in_time(Status done, const char* what) {
  if (done) {
    late_since_ns_ = 0;
    return done;
  }
  const std::uint64_t now = now_ns();
  if (late_since_ns_ == 0) late_since_ns_ = now;
  if (done.error().code != ErrorCode::DeadlineExceeded || now >= late_since_ns_ + kStuckNs) {
    break_down(what, done.error());
    return done;
  }
  return error(ErrorCode::Unavailable, Reason::None, name(), " is held up: ", what, " yet (",
               done.error().message, "); try again");
}

void GpuEngine::resume() {
  if (broken_) return;
  const Status resumed = grid().resume();
  if (resumed) return;
  if (resumed.error().code != ErrorCode::Unavailable)
    return break_down("its resident kernel does not start", resumed.error());
  resume_again_ns_ = now_ns() + kResumeAgainNs;  // the GPU is full of other work
}

Status GpuEngine::remove_member(std::uint32_t slot) {
  return in_time(grid().remove_member(slot),
                 "a rank's place in its resident kernel is not given back");
}

void GpuEngine::look_at_health() {
  if (broken_) return;
  if (const Status health = launcher().health(); !health)
    break_down("it has failed", health.error());
}

void GpuEngine::break_down(const char* what, const Error& why) {
  broken_ = true;
  log::error("{}: {}: {}", name(), what, why.message);
}

}  // namespace arcomm
