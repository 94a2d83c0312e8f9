#include "daemon/exec/gpu/measure/gpu_flag_echoes.h"

#include <algorithm>
#include <utility>

namespace arcomm {
namespace {

Error somebody_measures() {
  return error(ErrorCode::Unavailable, Reason::None, "somebody else measures: try again");
}

}  // namespace

GpuFlagEchoes::GpuFlagEchoes(GpuGroups& groups) : groups_(groups), of_gpus_(groups.engines.size()) {
  Quiescer& quiescer = groups_.quiescer;
  // Whoever lets go of memory would wait for a kernel that waits for this thread. One whose GPU has
  // not come to it yet ends as soon as it has, and is waited for by nobody else.
  quiescer.echoes_have_ended = [this] {
    end();
    return std::ranges::all_of(of_gpus_, [](const auto& echo) {
      return echo == nullptr || !echo->has_begun() || echo->has_left();
    });
  };
  quiescer.echoes_are_gone = [this] {
    return std::ranges::all_of(
        of_gpus_, [](const auto& echo) { return echo == nullptr || echo->has_left(); });
  };
}

GpuFlagEchoes::~GpuFlagEchoes() {
  groups_.quiescer.echoes_have_ended = {};
  groups_.quiescer.echoes_are_gone = {};
}

Status GpuFlagEchoes::begin(std::uint32_t gpu) {
  if (measured_ != nullptr && !measured_->is_over()) return somebody_measures();
  measured_ = nullptr;
  if (gpu < of_gpus_.size() && of_gpus_[gpu] != nullptr) {
    if (!of_gpus_[gpu]->has_left()) return of_gpus_[gpu]->is_kept_busy();
    of_gpus_[gpu].reset();  // its words are free for the next
  }
  Result<std::unique_ptr<GpuFlagEcho>> echo = GpuFlagEcho::begin(groups_, gpu);
  if (!echo) return std::move(echo).error();
  of_gpus_[gpu] = std::move(echo).value();
  measured_ = of_gpus_[gpu].get();
  return {};
}

Result<std::optional<FlagEcho>> GpuFlagEchoes::go_on() {
  if (measured_ == nullptr || measured_->is_over()) {
    return error(ErrorCode::Unavailable, Reason::None,
                 "somebody came, and the kernel that raises flags had to end: try again");
  }
  return measured_->go_on();
}

void GpuFlagEchoes::end() {
  for (const auto& echo : of_gpus_) {
    if (echo != nullptr) echo->stop();
  }
}

void GpuFlagEchoes::tend() {
  for (auto& echo : of_gpus_) {
    if (echo == nullptr || !echo->is_over() || !echo->has_left()) continue;
    if (measured_ == echo.get()) measured_ = nullptr;
    echo.reset();
  }
}

}  // namespace arcomm
