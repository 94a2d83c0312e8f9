// How fast the ways to other daemons are: measured by `arctl tune --network`, kept beside the
// tuning table, and used by communicators that meet here.
#include <algorithm>
#include <utility>

#include "daemon/control/peers/peer_addresses.h"
#include "daemon/daemon.h"
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

void fill(const SurveyedLink& link, v1::TuneLink& wire) {
  wire.set_address(link.figures.address);
  wire.set_name(link.figures.name);
  if (!link.status) {
    wire.set_why(safe_text(link.status.error().message, kMostWhyBytes));
    return;
  }
  wire.set_latency_us(link.figures.latency_us);
  wire.set_bytes_per_second(link.figures.bytes_per_second);
  wire.set_with_copies(link.with_copies);
  wire.set_without_copies(link.without_copies);
  wire.set_carried_bytes(link.carried_bytes);
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
  const std::vector<std::string> wanted(request.peers().begin(), request.peers().end());
  const Result<std::vector<SurveyedLink>> links = control_->survey_links(
      wanted,
      [&send](double progress, const SurveyedLink& link) {
        v1::TuneReply reply;
        reply.set_progress(progress);
        fill(link, *reply.add_links());
        send(std::move(reply));
      },
      cancelled);
  if (!links) return links.error();
  v1::TuneReply last;
  Error why;
  std::size_t measured = 0;
  for (const SurveyedLink& link : *links) {
    fill(link, *last.add_links());
    if (!link.status) {
      why = link.status.error();
      continue;
    }
    ++measured;
    tuning.put(link.figures);
  }
  if (measured == 0) return why;
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

}  // namespace arcomm
