#include "daemon/operator/network_tuner.h"

#include <chrono>
#include <utility>

#include "daemon/exec/tune/flag_survey.h"
#include "daemon/plan/tuning/tuning_file.h"
#include "daemon/shown.h"
#include "daemon/telemetry/log/log.h"

namespace arcomm {
namespace {

constexpr std::size_t kMostWhyBytes = 1024;

double us_of(std::chrono::nanoseconds time) {
  return std::chrono::duration<double, std::micro>(time).count();
}

void fill(const SurveyedLink& link, v1::TuneLink& wire) {
  wire.set_address(link.figures.address);
  wire.set_name(link.figures.name);
  if (!link.status) {
    wire.set_why(safe_text(link.status.error().message, kMostWhyBytes));
    return;
  }
  const LinkSpeed& copying = link.with_copies;
  const LinkSpeed& uncopied = link.without_copies;
  wire.set_latency_us(link.figures.latency_us);
  wire.set_bytes_per_second(link.figures.bytes_per_second);
  wire.set_with_copies(copying.bytes_per_second);
  wire.set_without_copies(uncopied.bytes_per_second);
  wire.set_carried_bytes(link.carried_bytes);
  wire.set_round_trip_us(us_of(copying.round_trip));
  wire.set_round_trip_p99_us(us_of(copying.round_trip_p99));
  wire.set_sent_with_copies(copying.sent_per_second);
  wire.set_received_with_copies(copying.received_per_second);
  wire.set_sent_without_copies(uncopied.sent_per_second);
  wire.set_received_without_copies(uncopied.received_per_second);
}

// The last one's error where none could be measured.
Status fill(const std::vector<SurveyedLink>& links, v1::TuneReply& last) {
  Status why;
  bool is_measured = false;
  for (const SurveyedLink& link : links) {
    fill(link, *last.add_links());
    is_measured |= link.status.ok();
    if (link.status) continue;
    const Error& failure = link.status.error();
    why = error(failure.code, failure.reason, link.figures.address, ": ", failure.message,
                "; arctl net says how it stands");
  }
  return is_measured ? Status() : why;
}

void fill(const std::string& gpu, const Result<FlagEcho>& flag, v1::TuneFlag& wire) {
  wire.set_gpu(gpu);
  if (!flag) return wire.set_why(safe_text(flag.error().message, kMostWhyBytes));
  wire.set_p50_us(us_of(std::chrono::nanoseconds(flag->p50_ns)));
  wire.set_p99_us(us_of(std::chrono::nanoseconds(flag->p99_ns)));
}

}  // namespace

Result<std::vector<SurveyedLink>> NetworkTuner::survey_links(const TuneCall& call) {
  const auto& peers = call.request.peers();
  return control_.survey_links(
      {peers.begin(), peers.end()},
      [&call](double progress, const SurveyedLink& link) {
        v1::TuneReply reply;
        reply.set_progress(progress);
        fill(link, *reply.add_links());
        call.send(std::move(reply));
      },
      call.cancelled);
}

Status NetworkTuner::tune(const TuneCall& call) {
  NetworkTuning tuning = *in_force_.network_tuning();  // what is not measured now stays
  const std::shared_ptr<const Settings> settings = in_force_.settings();
  const NetworkSetup setup = network_setup_of(*settings);
  tuning.node = setup.node;
  tuning.streams = setup.streams;
  tuning.interfaces = setup.interfaces;
  tuning.source = network_tuning_path(*settings);
  const Result<std::vector<SurveyedLink>> links = survey_links(call);
  if (!links) return links.error();
  v1::TuneReply last;
  ARC_RETURN_IF_ERROR(fill(*links, last));
  std::size_t measured = 0;
  for (const SurveyedLink& link : *links) {
    if (!link.status) continue;
    ++measured;
    tuning.put(link.figures);
  }
  last.set_progress(1);
  last.set_finished(true);
  last.set_table(print_network_tuning(tuning));
  if (!call.request.dry_run()) {
    // Saved first: what is in force is then also what a restart finds.
    ARC_RETURN_IF_ERROR(write_tuning_file(last.table(), tuning.source));
    last.set_saved_as(shown(tuning.source));
    log::info("tuned the network: {} of {} links, saved as {}", measured, links->size(),
              tuning.source);
    const auto figures = std::make_shared<const NetworkTuning>(std::move(tuning));
    in_force_.use(figures);
    control_.use_network_tuning(figures);
  }
  call.send(std::move(last));
  return {};
}

Status NetworkTuner::bench(const TuneCall& call) {
  const Result<std::vector<SurveyedLink>> links = survey_links(call);
  if (!links) return links.error();
  v1::TuneReply last;
  ARC_RETURN_IF_ERROR(fill(*links, last));
  if (workers_.serve_gpus()) {
    const Workers::Served& first = workers_.first();
    const auto& gpus = first.devices.devices;
    const Result<std::vector<Result<FlagEcho>>> flags =
        survey_flags(*first.worker, static_cast<std::uint32_t>(gpus.size()), call.cancelled);
    if (!flags) return flags.error();
    for (std::size_t gpu = 0; gpu < flags->size(); ++gpu)
      fill(gpus[gpu]->name(), (*flags)[gpu], *last.add_flags());
  }
  last.set_progress(1);
  last.set_finished(true);
  call.send(std::move(last));
  return {};
}

}  // namespace arcomm
