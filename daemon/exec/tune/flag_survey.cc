#include "daemon/exec/tune/flag_survey.h"

#include <chrono>
#include <thread>
#include <utility>

#include "daemon/exec/tune/ask_worker.h"
#include "daemon/exec/worker/device_worker.h"

namespace arcomm {
namespace {

// Clients come first, and are through with what they came for in milliseconds.
constexpr int kTries = 5;
constexpr std::chrono::milliseconds kPause{50};

Result<FlagEcho> measure_flag(DeviceWorker& worker, std::uint32_t gpu,
                              const std::function<bool()>& cancelled) {
  for (int tries = 1;; ++tries) {
    Result<FlagEcho> echo =
        ask_worker<FlagEcho>([&](auto done) { worker.measure_flag(gpu, std::move(done)); });
    const bool is_held_up =
        !echo && echo.error().code == ErrorCode::Unavailable && echo.error().reason == Reason::None;
    if (!is_held_up || tries == kTries || cancelled()) return echo;
    std::this_thread::sleep_for(kPause);
  }
}

}  // namespace

Result<std::vector<Result<FlagEcho>>> survey_flags(DeviceWorker& worker, std::uint32_t gpus,
                                                   const std::function<bool()>& cancelled) {
  std::vector<Result<FlagEcho>> flags;
  for (std::uint32_t gpu = 0; gpu < gpus; ++gpu) {
    if (cancelled())
      return error(ErrorCode::Cancelled, Reason::None, "the measurement was stopped");
    flags.push_back(measure_flag(worker, gpu, cancelled));
  }
  return flags;
}

}  // namespace arcomm
