#include "daemon/exec/gpu/measure/gpu_measurements.h"

#include <utility>

namespace arcomm {
namespace {

Error measuring_would_disturb(std::size_t communicators) {
  return error(ErrorCode::FailedPrecondition, Reason::None, communicators,
               " communicators are on the GPUs, and measuring would hold them up: measure when "
               "none is (arctl comms lists them)");
}

Error nobody_measures() {
  return error(ErrorCode::FailedPrecondition, Reason::None,
               "nobody has begun to measure, or a client came and took the memory: tune again");
}

}  // namespace

Status GpuMeasurements::check_may_measure() {
  if (groups_.all.empty()) return {};
  end();
  return measuring_would_disturb(groups_.all.size());
}

Status GpuMeasurements::begin(std::uint32_t ranks, std::uint64_t room_bytes) {
  end();
  ARC_RETURN_IF_ERROR(check_may_measure());
  Result<std::unique_ptr<GpuBench>> bench = GpuBench::create(groups_, ranks, room_bytes);
  if (!bench) return std::move(bench).error();
  bench_ = std::move(bench).value();
  return {};
}

Result<std::optional<std::uint64_t>> GpuMeasurements::prepare() {
  ARC_RETURN_IF_ERROR(check_may_measure());
  if (bench_ == nullptr) return nobody_measures();
  Result<std::optional<std::uint64_t>> room = bench_->prepare();
  if (!room && room.error().code != ErrorCode::Unavailable) bench_.reset();
  return room;
}

Status GpuMeasurements::measure(GpuMeasurement what) {
  ARC_RETURN_IF_ERROR(check_may_measure());
  if (bench_ == nullptr || !bench_->is_ready()) return nobody_measures();
  if (bench_->is_busy())
    return error(ErrorCode::FailedPrecondition, Reason::None, "somebody else measures: try again");
  return bench_->begin(what);
}

Result<std::optional<double>> GpuMeasurements::measured() {
  ARC_RETURN_IF_ERROR(check_may_measure());
  if (bench_ == nullptr || !bench_->is_busy()) return nobody_measures();
  return bench_->go_on();
}

Status GpuMeasurements::begin_flag_echo(std::uint32_t gpu) {
  ARC_RETURN_IF_ERROR(check_may_measure());
  if (bench_ != nullptr)
    return error(ErrorCode::Unavailable, Reason::None, "somebody else measures: try again");
  return echoes_.begin(gpu);
}

Result<std::optional<FlagEcho>> GpuMeasurements::flag_echo() {
  ARC_RETURN_IF_ERROR(check_may_measure());
  return echoes_.go_on();
}

void GpuMeasurements::end() {
  echoes_.end();  // tend() lets go of them
  if (bench_ == nullptr) return;
  bench_.reset();
  // What it had is given back now, or a little later.
  static_cast<void>(groups_.quiescer.quiesced([] {}));
}

}  // namespace arcomm
