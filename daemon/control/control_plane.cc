#include "daemon/control/control_plane.h"

#include <pthread.h>

#include <algorithm>
#include <utility>

#include "daemon/telemetry/log.h"

namespace arcomm {
namespace {

// A process needs one connection per call that waits; a uid may have `sessions` such processes.
std::uint64_t connections_per_uid(const Settings& settings) {
  return std::max<std::uint64_t>(1024, 8 * settings.quota.sessions);
}

}  // namespace

Result<std::unique_ptr<ControlPlane>> ControlPlane::create(Parts parts) {
  std::unique_ptr<ControlPlane> self(new ControlPlane(std::move(parts)));
  Result<std::unique_ptr<EventLoop>> loop = EventLoop::create();
  if (!loop) return std::move(loop).error();
  self->loop_ = std::move(loop).value();
  self->reachable_ = std::make_shared<NodeControl*>(nullptr);
  return self;
}

ControlPlane::~ControlPlane() {
  stop();
}

WorkerEvents ControlPlane::events() {
  return {.session_lost =
              [loop = loop_, reachable = reachable_](SessionId session, Reason reason,
                                                     std::string why) {
                loop->post([reachable, session, reason, why = std::move(why)] {
                  if (*reachable != nullptr) (*reachable)->session_lost(session, reason, why);
                });
              },
          .communicator_revoked =
              [loop = loop_, reachable = reachable_](const UniqueIdBytes& unique_id,
                                                     std::uint64_t epoch, Reason) {
                loop->post([reachable, unique_id, epoch] {
                  if (*reachable != nullptr) (*reachable)->communicator_revoked(unique_id, epoch);
                });
              }};
}

Status ControlPlane::serve(std::vector<WorkerRef> workers, std::vector<ListeningSocket> sockets) {
  control_ = std::make_unique<NodeControl>(NodeControl::Parts{.loop = *loop_,
                                                              .metrics = parts_.metrics,
                                                              .memory_thread = memory_thread_,
                                                              .settings = parts_.settings,
                                                              .kept_rings = parts_.kept_rings,
                                                              .workers = std::move(workers)});
  *reachable_ = control_.get();
  admin_ = std::make_unique<NodeAdmin>(*loop_, parts_.metrics, *control_, parts_.actions);
  gate_ = std::make_unique<Gate>(Gate::Parts{
      .loop = *loop_,
      .metrics = parts_.metrics,
      .access = parts_.settings->access,
      .connections_per_uid = connections_per_uid(*parts_.settings),
      .adopt_rpc = [this](UniqueFd fd) { server_->adopt(std::move(fd)); },
      .adopt_descriptors =
          [this](UniqueFd fd, const Caller& caller) {
            control_->descriptors().adopt(std::move(fd), caller);
          },
      .hung_up =
          [this](ConnectionNumber connection) { control_->connection_hung_up(connection); }});
  control_->on_descriptor_release([this](uid_t uid) { gate_->release(uid); });
  Result<std::unique_ptr<RpcServer>> server = RpcServer::start(
      {.loop = *loop_,
       .metrics = parts_.metrics,
       .control = *control_,
       .admin = *admin_,
       .find_caller = [this](const std::string& peer) { return gate_->find(peer); }});
  if (!server) return server.error();
  server_ = std::move(server).value();
  ARC_RETURN_IF_ERROR(gate_->open(std::move(sockets)));
  loop_thread_ = std::thread([loop = loop_] {
    ::pthread_setname_np(::pthread_self(), "arc-control");
    loop->run();
  });
  return {};
}

void ControlPlane::use_settings(std::shared_ptr<const Settings> settings) {
  loop_->post([this, settings = std::move(settings)] {
    control_->use_settings(settings);
    gate_->use_access(settings->access);
  });
}

void ControlPlane::begin_shutdown() {
  loop_->post([this] { control_->begin_shutdown(); });
}

void ControlPlane::stop() {
  if (!loop_thread_.joinable()) return;
  begin_shutdown();
  admin_->begin_stop();
  server_->stop();  // while the loop runs: handlers answer, releases and detaches included
  memory_thread_.stop();
  loop_->post([this] {
    *reachable_ = nullptr;
    gate_->close();
  });
  loop_->stop();
  loop_thread_.join();
  admin_->stop();
  // What waits in timers may hold charges, whose book goes with control_.
  loop_->clear();
}

}  // namespace arcomm
