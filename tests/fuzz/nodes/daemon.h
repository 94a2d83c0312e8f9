// A whole daemon less its control: a worker on the host, and a seat in each communicator that it
// has a rank of.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "daemon/exec/host/host_backend.h"
#include "daemon/exec/worker/worker.h"
#include "daemon/plan/tuning/tuning_table.h"
#include "daemon/telemetry/flight_recorder.h"
#include "daemon/telemetry/log/log.h"
#include "daemon/telemetry/metrics/metrics.h"
#include "tests/fuzz/nodes/seat.h"
#include "transport/device/host/host_device.h"
#include "transport/net/tcp/connection.h"

namespace arcomm::fuzz {

inline constexpr std::size_t kDaemons = 2;  // whole ones; the peer is no. 2
inline constexpr PeerId kPeers[] = {0x1000, 0x1001, 0x1002};
inline constexpr const char* kNames[] = {"node-a", "node-b", "node-x"};

struct Shape {
  std::uint64_t number;
  std::vector<std::uint32_t> nodes;  // of daemons, one rank on each
};
inline const std::array<Shape, 4> kShapes{Shape{8, {0, 1}},     // the innocent one
                                          Shape{7, {0, 2}},     // with the peer
                                          Shape{9, {0, 1, 2}},  // all
                                          Shape{10, {2, 1}}};
inline constexpr std::size_t kInnocent = 0;

struct Shared {
  Shared() { log::set_level(LogLevel::Error); }
  std::unique_ptr<HostDevice> device = HostDevice::create({}).value();
  std::unique_ptr<FlightRecorder> recorder = FlightRecorder::create(1024, 1024).value();
  Metrics metrics;
  // Little, as each input takes it anew: what all communicators here need.
  std::shared_ptr<Settings> settings = [] {
    auto made = std::make_shared<Settings>();
    made->net.staging_bytes = std::uint64_t{10} << 20;
    return made;
  }();
  std::shared_ptr<TuningTable> tuning = std::make_shared<TuningTable>(default_tuning());
};

inline Shared& shared() {
  static Shared one;
  return one;
}

class Daemon {
 public:
  explicit Daemon(std::uint32_t index) : index_(index) {
    Shared& all = shared();
    worker_ =
        Worker::create(
            {.device = all.device->name(),
             .open_backend = [&all](const BackendParts& parts) -> Result<std::unique_ptr<Backend>> {
               auto host = HostBackend::create(*all.device, 1, parts.buffers, parts.tuning,
                                               {.bytes = all.settings->net.staging_bytes});
               if (!host) return std::move(host).error();
               return std::unique_ptr<Backend>(std::move(host).value());
             },
             .recorder = *all.recorder,
             .metrics = all.metrics,
             .settings = all.settings,
             .tuning = all.tuning,
             .events = {}})
            .value();
    control_.emplace(*worker_);
    for (std::size_t i = 0; i < kShapes.size(); ++i) {
      const auto& nodes = kShapes[i].nodes;
      const auto here = std::ranges::find(nodes, index);
      if (here == nodes.end()) continue;
      seats_[i] = std::make_unique<Seat>(*control_, SessionId{static_cast<std::uint32_t>(i), 1},
                                         here - nodes.begin());
    }
  }

  Seat* seat(std::size_t shape) { return seats_[shape].get(); }

  void link(std::uint32_t other, net::ConnectionPtr messages, net::ConnectionPtr bulk,
            std::shared_ptr<net::Regions> regions) {
    LinkSpec spec{.peer = kPeers[other],
                  .name = kNames[other],
                  .messages = std::move(messages),
                  .bulk = {},
                  .bulk_options = {},
                  .regions = std::move(regions)};
    spec.bulk.push_back(std::move(bulk));  // without options: the worker drives it
    check(worker_->state().nodes.open_link(std::move(spec)).ok());
  }
  // Not where the link to a peer has gone, or what came early was too much.
  void form(std::size_t index) {
    Seat* const one = seat(index);
    if (one == nullptr || one->member()) return;
    const Shape& shape = kShapes[index];
    CommunicatorSpec spec;
    spec.unique_id.fill(static_cast<std::byte>(shape.number));
    spec.communicator = shape.number;
    for (std::uint32_t rank = 0; rank < shape.nodes.size(); ++rank) {
      spec.node_of_rank.push_back(rank);
      spec.nodes.push_back({.peer = kPeers[shape.nodes[rank]], .name = kNames[shape.nodes[rank]]});
      if (shape.nodes[rank] != index_) continue;
      spec.here = rank;
      spec.ranks = {{one->id(), static_cast<Rank>(rank)}};
    }
    std::unique_ptr<CommunicatorExtension> made;
    const auto formed = control_->form_communicator(spec, made);
    check(formed.ok() || index != kInnocent);
    if (formed) one->sit((*formed)->front());
  }
  void leave(std::size_t index, bool aborts) {
    Seat* const one = seat(index);
    if (one == nullptr || !one->member()) return;
    const auto nobody = [](const Result<void>&) {};
    aborts ? control_->abort_communicator(one->id(), *one->member(), "enough", nobody)
           : control_->leave_communicator(one->id(), *one->member(), nobody);
  }

  bool turn() {
    const std::uint64_t now = now_ns();
    worker_->state().backend->begin_turn();
    bool worked = worker_->poll_sessions();
    worked |= worker_->look_at_nodes(now);
    worker_->sweep_deadlines(now);
    worked |= worker_->settle();
    worked |= worker_->execute();
    worked |= worker_->reap();
    worked |= worker_->settle();
    for (std::size_t i = 0; i < seats_.size(); ++i) {
      if (seats_[i] != nullptr) seats_[i]->hear(i == kInnocent, kShapes[i].nodes.size());
    }
    return worked;
  }
  bool is_waiting() const {
    return std::ranges::any_of(
        seats_, [](const auto& one) { return one != nullptr && one->open_calls() != 0; });
  }
  bool shut_down() { return worker_->shut_down(); }

 private:
  const std::uint32_t index_;
  std::array<std::unique_ptr<Seat>, kShapes.size()> seats_;
  std::unique_ptr<Worker> worker_;
  std::optional<ControlRequests> control_;
};

}  // namespace arcomm::fuzz
