#include "daemon/exec/gpu/gpu_engine.h"

#include <chrono>
#include <utility>

#include "daemon/telemetry/log/log.h"

namespace arcomm {
namespace {

// A grid that was launched while another's kernel fills the GPU leaves only after that one has
// ended.
constexpr auto kPauseTimeout = std::chrono::seconds(3);

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

Status GpuEngine::pause() {
  if (broken_) {
    return error(ErrorCode::Internal, Reason::None, name(),
                 " does not answer: see the daemon's log");
  }
  Status paused = grid().pause(kPauseTimeout);
  if (!paused) break_down("its resident kernel does not leave", paused.error());
  return paused;
}

void GpuEngine::resume() {
  if (broken_) return;
  if (const Status resumed = grid().resume(); !resumed)
    break_down("its resident kernel does not start", resumed.error());
}

Status GpuEngine::remove_member(std::uint32_t slot) {
  Status removed = grid().remove_member(slot);
  if (!removed) {
    break_down("a rank's place in its resident kernel is not given back", removed.error());
  }
  return removed;
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
