// How fast the ways to other daemons are: measured by `arctl tune --network`, kept beside the
// tuning table, and used by communicators that meet here; and measured by `arctl bench --network`,
// with what comes to them on this node, for its operator alone.
#include <algorithm>
#include <utility>

#include "daemon/control/peers/peer_addresses.h"
#include "daemon/daemon.h"
#include "daemon/exec/tune/flag_survey.h"
#include "daemon/plan/network/network_tuning.h"
#include "daemon/plan/tuning_file.h"
#include "daemon/telemetry/log/log.h"
#include "proto/text.h"

namespace arcomm {
namespace {

constexpr std::size_t kMostWhyBytes = 1024;
constexpr std::size_t kMostPathBytes = 4096;

NetworkSetup setup_of(const Settings& settings) {
  return {.node = settings.net.name.empty() ? own_host_name() : settings.net.name,
          .streams = settings.net.streams,
          .interfaces = settings.net.interfaces,
          .peers = split_list(settings.net.peers)};
}

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

// Figures that do not hold must not keep the node from serving: without any the usual ones do.
void Daemon::load_network_tuning() {
  const Settings& settings = loaded_.settings;
  network_tuning_ = std::make_shared<const NetworkTuning>();
  if (settings.net.peers.empty()) return;
  Result<NetworkTuning> tuning =
      arcomm::load_network_tuning(network_tuning_path(settings), setup_of(settings));
  if (tuning) {
    network_tuning_ = std::make_shared<const NetworkTuning>(*std::move(tuning));
  } else if (tuning.error().code != ErrorCode::NotFound) {
    warnings_.push_back("what was measured of the network is not used: " + tuning.error().message);
  }
}

void Daemon::use_network_tuning(const std::shared_ptr<const NetworkTuning>& tuning) {
  {
    std::lock_guard lock(mutex_);
    network_tuning_ = tuning;
  }
  control_->use_network_tuning(tuning);
}

Result<std::vector<SurveyedLink>> Daemon::survey_links(
    const v1::TuneRequest& request, const std::function<void(v1::TuneReply)>& send,
    const std::function<bool()>& cancelled) {
  const std::vector<std::string> wanted(request.peers().begin(), request.peers().end());
  return control_->survey_links(
      wanted,
      [&send](double progress, const SurveyedLink& link) {
        v1::TuneReply reply;
        reply.set_progress(progress);
        fill(link, *reply.add_links());
        send(std::move(reply));
      },
      cancelled);
}

Status Daemon::tune_network(const v1::TuneRequest& request,
                            const std::function<void(v1::TuneReply)>& send,
                            const std::function<bool()>& cancelled) {
  NetworkTuning tuning;
  Settings settings;
  {
    std::lock_guard lock(mutex_);
    tuning = *network_tuning_;  // what is not measured now stays
    settings = loaded_.settings;
  }
  const NetworkSetup setup = setup_of(settings);
  tuning.node = setup.node;
  tuning.streams = setup.streams;
  tuning.interfaces = setup.interfaces;
  tuning.source = network_tuning_path(settings);
  const Result<std::vector<SurveyedLink>> links = survey_links(request, send, cancelled);
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
  if (!request.dry_run()) {
    // Saved first: what is in force is then also what a restart finds.
    ARC_RETURN_IF_ERROR(write_tuning_file(last.table(), tuning.source));
    last.set_saved_as(safe_text(tuning.source, kMostPathBytes));
    log::info("tuned the network: {} of {} links, saved as {}", measured, links->size(),
              tuning.source);
    use_network_tuning(std::make_shared<const NetworkTuning>(std::move(tuning)));
  }
  send(std::move(last));
  return {};
}

Status Daemon::bench_network(const v1::TuneRequest& request,
                             const std::function<void(v1::TuneReply)>& send,
                             const std::function<bool()>& cancelled) {
  const Result<std::vector<SurveyedLink>> links = survey_links(request, send, cancelled);
  if (!links) return links.error();
  v1::TuneReply last;
  ARC_RETURN_IF_ERROR(fill(*links, last));
  const Served& first = served_.front();
  if (first.devices.on_gpus()) {
    const auto& gpus = first.devices.devices;
    const Result<std::vector<Result<FlagEcho>>> flags =
        survey_flags(*first.worker, static_cast<std::uint32_t>(gpus.size()), cancelled);
    if (!flags) return flags.error();
    for (std::size_t gpu = 0; gpu < flags->size(); ++gpu)
      fill(gpus[gpu]->name(), (*flags)[gpu], *last.add_flags());
  }
  last.set_progress(1);
  last.set_finished(true);
  send(std::move(last));
  return {};
}

}  // namespace arcomm
