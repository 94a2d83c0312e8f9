#include "daemon/operator/node_tuner.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <optional>
#include <utility>

#include "daemon/exec/tune/gpu_tuner.h"
#include "daemon/exec/tune/tuner.h"
#include "daemon/plan/chosen.h"
#include "daemon/plan/planner.h"
#include "daemon/shown.h"
#include "daemon/telemetry/log/log.h"
#include "kernels/catalog.h"

namespace arcomm {
namespace {

constexpr std::uint64_t kLongestTuneMs = 3'600'000;
constexpr std::size_t kMostInCallPoints = 4096;

// Of either table.
template <typename Point>
void fill(const Point& point, v1::TunePoint& wire) {
  wire.set_bytes(point.bytes);
  wire.set_ranks(static_cast<std::int32_t>(point.ranks));
  wire.set_algorithm(std::string(name_of(point.algorithm)));
  wire.set_microseconds(point.microseconds);
  if constexpr (requires { point.type_class; })
    wire.set_type_class(std::string(text_of(point.type_class)));
}

// Of either tuner.
template <typename Step>
v1::TuneReply to_wire(const Step& step) {
  v1::TuneReply reply;
  reply.set_progress(step.progress);
  fill(step.point, *reply.mutable_point());
  return reply;
}

// What was measured, with a mark at what is taken from now on.
void add_marked(const TuningTable& table, const Settings& settings, bool on_gpus,
                v1::TuneReply& reply) {
  if (on_gpus) {
    // Checked when the settings were loaded.
    const auto forced = forced_algorithm(settings.gpu.algorithm).value();
    for (const GpuTuningPoint& point : table.gpu.points) {
      v1::TunePoint& wire = *reply.add_points();
      fill(point, wire);
      wire.set_chosen(is_chosen(table.gpu, forced, settings.gpu.in_stream, point));
    }
    return;
  }
  const DeviceShape shape = host_shape(settings.host.streams);
  for (const TuningPoint& point : table.points) {
    v1::TunePoint& wire = *reply.add_points();
    fill(point, wire);
    wire.set_chosen(is_chosen(table, shape, point));
  }
  for (const InCallPoint& point : table.in_call.points) {
    const std::uint64_t most =
        in_call_bounds(settings.host.in_call_bytes, table.in_call, point.ranks)
            .of(point.type_class);
    for (const bool in_call : {true, false}) {
      v1::TunePoint& wire = *reply.add_points();
      wire.set_bytes(point.bytes);
      wire.set_ranks(static_cast<std::int32_t>(point.ranks));
      wire.set_algorithm(in_call ? "in_call" : "by_worker");
      wire.set_microseconds(in_call ? point.microseconds : point.by_worker_microseconds);
      wire.set_type_class(std::string(text_of(point.type_class)));
      wire.set_chosen(in_call == (most != 0 && point.bytes <= most));
    }
  }
}

// What arctl measured itself.
Result<InCallTuning> in_call_of(const v1::TuneRequest& request) {
  InCallTuning tuning;
  for (const v1::TuneInCall& wire : request.in_call()) {
    const std::optional<TypeClass> type_class = class_named(wire.type_class());
    const auto is_time = [](double us) { return std::isfinite(us) && us > 0; };
    if (wire.ranks() < 2 || std::cmp_greater(wire.ranks(), kMaxInCallRanks) || wire.bytes() == 0 ||
        wire.bytes() > kMaxInCallBytes || !type_class || !is_time(wire.microseconds()) ||
        !is_time(wire.by_worker_microseconds()) || tuning.points.size() == kMostInCallPoints) {
      return error(ErrorCode::InvalidArgument, Reason::BadValue,
                   "no measurement of calls: ", wire.ranks(), " ranks, ", wire.bytes(),
                   " bytes, class \"", shown(wire.type_class()), "\", ", wire.microseconds(),
                   " and ", wire.by_worker_microseconds(), " us; there are 2 to ", kMaxInCallRanks,
                   " ranks, 1 to ", kMaxInCallBytes, " bytes, plain and half, and at most ",
                   kMostInCallPoints, " of them");
    }
    tuning.points.push_back({.ranks = static_cast<std::uint32_t>(wire.ranks()),
                             .bytes = wire.bytes(),
                             .type_class = *type_class,
                             .microseconds = wire.microseconds(),
                             .by_worker_microseconds = wire.by_worker_microseconds()});
  }
  tuning.settle();
  return tuning;
}

}  // namespace

Result<TuningTable> NodeTuner::measure_host(const TuneCall& call) {
  TuneOptions options;
  options.max_bytes = call.request.max_bytes();
  options.budget = std::chrono::milliseconds(std::min(call.request.budget_ms(), kLongestTuneMs));
  options.threads = in_force_.settings()->host.streams;
  return arcomm::tune(workers_.host_device(), options, [&](const TuneStep& step) {
    call.send(to_wire(step));
    return !call.cancelled();
  });
}

Result<GpuTuningTable> NodeTuner::measure_gpus(const TuneCall& call) {
  if (!workers_.serve_gpus()) {
    return error(ErrorCode::FailedPrecondition, Reason::Unsupported,
                 "this daemon serves no GPU: arctl status and its log say why");
  }
  const Workers::Served& first = workers_.first();
  GpuTuneOptions options;
  options.max_bytes = call.request.max_bytes();
  options.budget = std::chrono::milliseconds(std::min(call.request.budget_ms(), kLongestTuneMs));
  Result<GpuTuningTable> measured =
      tune_gpus(*first.worker, static_cast<std::uint32_t>(first.devices.devices.size()), options,
                [&](const GpuTuneStep& step) {
                  call.send(to_wire(step));
                  return !call.cancelled();
                });
  if (measured) measured->machine = backend_.name;
  return measured;
}

Status NodeTuner::tune(const TuneCall& call, bool on_gpus) {
  TuningTable table = *in_force_.tuning();  // what is not measured now stays
  const std::shared_ptr<const Settings> settings = in_force_.settings();
  const std::string path = tuning_path(*settings);
  if (on_gpus) {
    Result<GpuTuningTable> measured = measure_gpus(call);
    if (!measured) return measured.error();
    table.gpu = std::move(measured).value();
    table.gpu.source = path;
  } else {
    Result<InCallTuning> in_call = in_call_of(call.request);
    if (!in_call) return in_call.error();
    Result<TuningTable> measured = measure_host(call);
    if (!measured) return measured.error();
    measured->gpu = std::move(table.gpu);
    measured->in_call = in_call->over(table.in_call);
    table = std::move(measured).value();
  }
  table.source = path;
  if (call.cancelled())
    return error(ErrorCode::Cancelled, Reason::None, "the tune was stopped; the old table stays");
  v1::TuneReply last;
  last.set_progress(1);
  last.set_finished(true);
  last.set_table(print_tuning(table));
  add_marked(table, *settings, on_gpus, last);
  if (!call.request.dry_run()) {
    // Saved first: what is in force is then also what a restart finds.
    ARC_RETURN_IF_ERROR(save_tuning(table, path));
    last.set_saved_as(shown(path));
    const auto measured = std::make_shared<const TuningTable>(table);
    in_force_.use(measured);
    use_(measured);
    log::info("tuned {}: {} points, saved as {}", on_gpus ? "the GPUs" : "the host",
              on_gpus ? table.gpu.points.size() : table.points.size(), path);
  }
  call.send(std::move(last));
  return {};
}

}  // namespace arcomm
