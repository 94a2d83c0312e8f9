#include "daemon/exec/gpu/measure/gpu_flag_echo.h"

#include "daemon/exec/clock.h"
#include "daemon/exec/gpu/measure/flag_answers.h"

namespace arcomm {
namespace {

constexpr std::uint64_t kEchoTimes = FlagAnswers::kWarmUp + 2000;  // some milliseconds
constexpr std::uint64_t kFewestEchoes = 100;                       // that figures are made of
constexpr std::uint64_t kAnswerNs = 20'000'000;                    // of a turn
constexpr std::uint64_t kBeginNs = 1'000'000'000;
// A kernel whose CPU is gone gives up by itself.
constexpr std::uint64_t kEchoTimeoutNs = 1'000'000'000;
constexpr std::uint32_t kEchoQueue = 0;  // no communicator has launched anything there

Error kept_busy(const GpuEngine& engine) {
  return error(ErrorCode::Unavailable, Reason::None, engine.name(),
               " has not come to the kernel that raises flags: other work keeps it busy "
               "(nvidia-smi lists the processes there); try again");
}

}  // namespace

Result<std::unique_ptr<GpuFlagEcho>> GpuFlagEcho::begin(GpuGroups& groups, std::uint32_t gpu) {
  if (gpu >= groups.engines.size()) {
    return error(ErrorCode::InvalidArgument, Reason::BadValue, "there is no GPU ", gpu, ": ",
                 groups.engines.size(), " are served");
  }
  GpuEngine& engine = groups.engines[gpu];
  // Not behind what may wait, nor on words that another echo may still use.
  const Result<bool> idle = engine.launcher().idle(kEchoQueue);
  if (!idle) return idle.error();
  if (!*idle) return kept_busy(engine);
  std::unique_ptr<GpuFlagEcho> echo(new GpuFlagEcho(engine));
  ARC_RETURN_IF_ERROR(echo->launch());
  return echo;
}

GpuFlagEcho::~GpuFlagEcho() {
  stop();
}

Error GpuFlagEcho::is_kept_busy() const {
  return kept_busy(engine_);
}

Status GpuFlagEcho::launch() {
  FlagEchoWords& words = this->words();
  words = {};
  limit_ns_ = now_ns() + kBeginNs;
  return engine_.launcher().launch_flag_echo(
      kEchoQueue, {.words = &words, .times = kEchoTimes, .timeout_ns = kEchoTimeoutNs});
}

Result<std::optional<FlagEcho>> GpuFlagEcho::go_on() {
  if (!has_begun()) {
    if (now_ns() < limit_ns_) return std::optional<FlagEcho>();
    stop();
    return is_kept_busy();
  }
  const Result<FlagEcho> echo = answer();
  if (!echo) return echo.error();
  return std::optional(*echo);
}

Result<FlagEcho> GpuFlagEcho::answer() {
  FlagAnswers answers(kEchoTimes);
  answers.answer([this]() -> FlagEchoWords& { return words(); }, now_ns() + kAnswerNs);
  stop();  // if it still asks
  const FlagEcho echo = answers.figures();
  if (echo.times >= kFewestEchoes) return echo;
  return error(ErrorCode::Unavailable, Reason::None, engine_.name(), ": only ", echo.times,
               " flags came and went within ", kAnswerNs / 1'000'000,
               " ms: the GPU, or the worker's core, is kept busy; try again");
}

void GpuFlagEcho::stop() {
  const auto ended = [this] { return __atomic_load_n(&words().ended, __ATOMIC_ACQUIRE) != 0; };
  if (!is_stopped_ && !ended()) __atomic_store_n(&words().answered, kStopEcho, __ATOMIC_RELEASE);
  is_stopped_ = true;
}

bool GpuFlagEcho::has_left() {
  stop();
  // A queue that answers with an error holds nothing any more.
  const Result<bool> idle = engine_.launcher().idle(kEchoQueue);
  return !idle || *idle;
}

}  // namespace arcomm
