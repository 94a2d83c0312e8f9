#include "daemon/control/control_plane.h"

#include <pthread.h>

#include <algorithm>
#include <future>
#include <system_error>
#include <utility>

#include "daemon/telemetry/log/log.h"

namespace arcomm {
namespace {

// A process needs one connection per call that waits; a uid may have `sessions` such processes.
FairShare::Limits most_connections(const Settings::Quota& filled) {
  return {.node = filled.node_connections,
          .per_uid = std::max<std::uint64_t>(1024, 8 * filled.sessions)};
}

FairShare::Limits most_calls(const Settings::Quota& filled) {
  return {.node = filled.node_calls};
}

}  // namespace

Result<std::unique_ptr<ControlPlane>> ControlPlane::create(Parts parts) {
  std::unique_ptr<ControlPlane> self(new ControlPlane(std::move(parts)));
  Result<std::unique_ptr<EventLoop>> loop = EventLoop::create();
  if (!loop) return std::move(loop).error();
  self->loop_ = std::move(loop).value();
  self->reachable_ = std::make_shared<NodeControl*>(nullptr);
  self->reachable_peers_ = std::make_shared<Peers*>(nullptr);
  return self;
}

ControlPlane::~ControlPlane() {
  stop();
  // Where serve() failed there was no loop to do it on.
  if (control_) control_->leave_peers();
}

WorkerEvents ControlPlane::events(std::size_t worker) {
  return {
      .session_lost =
          [loop = loop_, reachable = reachable_](SessionId session, Reason reason,
                                                 std::string why) {
            loop->post([reachable, session, reason, why = std::move(why)] {
              if (*reachable != nullptr) (*reachable)->session_lost(session, reason, why);
            });
          },
      .communicator_revoked =
          [loop = loop_, reachable = reachable_](
              const UniqueIdBytes& unique_id, std::uint64_t epoch, Reason, const std::string& why) {
            loop->post([reachable, unique_id, epoch, why] {
              if (*reachable != nullptr) (*reachable)->communicator_revoked(unique_id, epoch, why);
            });
          },
      .link_lost =
          [loop = loop_, reachable = reachable_peers_, worker](PeerId peer, Error why) {
            loop->post([reachable, worker, peer, why = std::move(why)] {
              if (*reachable != nullptr) (*reachable)->link_lost(peer, worker, why);
            });
          }};
}

Status ControlPlane::serve(std::vector<WorkerRef> workers, std::vector<ListeningSocket> sockets) {
  const std::vector<WorkerRef> all_workers = workers;
  control_ = std::make_unique<NodeControl>(NodeControl::Parts{.loop = *loop_,
                                                              .metrics = parts_.metrics,
                                                              .memory_thread = memory_thread_,
                                                              .settings = parts_.settings,
                                                              .kept_rings = parts_.kept_rings,
                                                              .workers = std::move(workers)});
  *reachable_ = control_.get();
  const Settings::Quota limits = fill_node_limits(parts_.settings->quota, machine_);
  admin_ = std::make_unique<NodeAdmin>(*loop_, parts_.metrics, *control_, parts_.actions);
  gate_ = std::make_unique<ConnectionGate>(ConnectionGate::Parts{
      .loop = *loop_,
      .metrics = parts_.metrics,
      .closer = control_->descriptors().closer(),
      .groups = AccessGroups::look_up(parts_.settings->access),
      .connections = most_connections(limits),
      .adopt_rpc = [this](UniqueFd fd) { server_->adopt(std::move(fd)); },
      .adopt_descriptors =
          [this](UniqueFd fd, const Caller& caller) {
            control_->descriptors().adopt(std::move(fd), caller);
          },
      .hung_up =
          [this](ConnectionNumber connection) { control_->connection_hung_up(connection); }});
  admin_->use_connections(gate_->connections());
  control_->on_descriptor_release([this](uid_t uid) { gate_->release(uid); });
  Result<std::unique_ptr<RpcServer>> server = RpcServer::start(
      {.loop = *loop_,
       .metrics = parts_.metrics,
       .control = *control_,
       .admin = *admin_,
       .calls = most_calls(limits),
       .find_caller = [this](const std::string& peer) { return gate_->find(peer); }});
  if (!server) return server.error();
  server_ = std::move(server).value();
  heartbeat_ = std::make_unique<RpcHeartbeat>(
      [this](UniqueFd connection) { server_->adopt(std::move(connection)); });
  admin_->use_calls([this] { return server_->calls(); });
  if (Peers::are_wanted(*parts_.settings)) {
    Result<std::unique_ptr<Peers>> peers =
        Peers::create({.loop = loop_,
                       .metrics = parts_.metrics,
                       .closer = control_->descriptors().closer(),
                       .settings = parts_.settings,
                       .workers = all_workers});
    if (!peers) return std::move(peers).error();
    peers_ = *std::move(peers);
    *reachable_peers_ = peers_.get();
    admin_->use_peers(*peers_);
    control_->use_peers(peers_->messenger(), peers_->link_maker());
  }
  ARC_RETURN_IF_ERROR(gate_->open(std::move(sockets)));
  loop_thread_ = std::thread([loop = loop_] {
    ::pthread_setname_np(::pthread_self(), "arc-control");
    loop->run();
  });
  return {};
}

void ControlPlane::use_settings(const std::shared_ptr<const Settings>& settings) {
  loop_->post([this, settings] {
    control_->use_settings(settings);
    const Settings::Quota limits = fill_node_limits(settings->quota, machine_);
    gate_->use_connection_limits(most_connections(limits));
    server_->use_call_limits(most_calls(limits));
  });
  // A name service that hangs must hold up neither the loop nor the caller, who has a watchdog to
  // feed; nor, not being joined, the end of the daemon.
  try {
    std::thread([this, settings, turn = ++reloads_, loop = loop_, reachable = reachable_] {
      loop->post([this, groups = AccessGroups::look_up(settings->access), turn, reachable] {
        // What an earlier reload found is out of date.
        if (*reachable != nullptr && turn == reloads_) gate_->use_groups(groups);
      });
    }).detach();
  } catch (const std::system_error& failure) {
    log::error("no thread to look up the groups on: access stays as it was: {}", failure.what());
  }
}

void ControlPlane::use_network_tuning(const std::shared_ptr<const NetworkTuning>& tuning) {
  loop_->post([reachable = reachable_, peers = reachable_peers_, tuning] {
    if (*reachable != nullptr) (*reachable)->use_network_tuning(tuning);
    if (*peers != nullptr) (*peers)->links().use_tuning(tuning);
  });
}

void ControlPlane::use_tuning(const std::shared_ptr<const TuningTable>& tuning) {
  loop_->post([reachable = reachable_, tuning] {
    if (*reachable != nullptr) (*reachable)->use_tuning(tuning);
  });
}

void ControlPlane::begin_shutdown() {
  loop_->post([this] { control_->begin_shutdown(); });
}

void ControlPlane::stop() {
  if (!loop_thread_.joinable()) return;
  begin_shutdown();
  admin_->begin_stop();
  // Before gRPC's server goes: a connection that still came would be handed to nobody.
  std::promise<void> deaf;
  loop_->post([this, &deaf] {
    gate_->close_listeners();
    if (peers_) return peers_->begin_stop([&deaf] { deaf.set_value(); });
    deaf.set_value();
  });
  deaf.get_future().wait();
  heartbeat_->end();
  server_->stop();  // while the loop runs: handlers answer, releases and detaches included
  if (peers_) peers_->stop_server();
  memory_thread_.stop();
  loop_->post([this] {
    *reachable_ = nullptr;
    *reachable_peers_ = nullptr;
    gate_->close();
    control_->leave_peers();
    if (peers_) peers_->close();
  });
  loop_->stop();
  loop_thread_.join();
  admin_->stop();
  // What waits in timers may hold charges, whose book goes with control_.
  loop_->clear();
}

}  // namespace arcomm
