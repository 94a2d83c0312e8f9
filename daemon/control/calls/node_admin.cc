#include "daemon/control/calls/node_admin.h"

#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "daemon/control/calls/status/communicator_status.h"
#include "daemon/control/calls/status/limit_status.h"
#include "daemon/control/calls/status/net_status.h"
#include "daemon/control/calls/status/trace_reply.h"
#include "daemon/telemetry/log/log.h"
#include "daemon/telemetry/metrics/metrics.h"

namespace arcomm {
namespace {

constexpr std::chrono::milliseconds kInspectLimit{1000};

void fill(const SessionSnapshot& session, const std::string& device, v1::SessionStatus& wire) {
  wire.set_session(session.id.bits());
  wire.set_pid(session.peer.pid);
  wire.set_uid(session.peer.uid);
  wire.set_gid(session.peer.gid);
  wire.set_process_name(session.process_name);
  wire.set_device(device);
  wire.set_state(session.state);
  wire.set_communicators(session.communicators);
  wire.set_buffers(session.buffers);
  wire.set_registered_bytes(session.registered_bytes);
  wire.set_in_flight(session.in_flight);
  wire.set_submitted(session.submitted);
  wire.set_completed(session.completed);
  wire.set_failed(session.failed);
  wire.set_rejected(session.rejected);
  wire.set_age_ms(session.age_ms);
}

}  // namespace

NodeAdmin::NodeAdmin(EventLoop& loop, Metrics& metrics, NodeControl& control,
                     DaemonActions& actions)
    : metrics_(metrics), control_(control), actions_(actions), replies_(loop, kInspectLimit) {}

void NodeAdmin::stop() {
  stopping_ = true;
  files_.stop();
  if (tuner_.joinable()) tuner_.join();
}

void NodeAdmin::inspect(const std::function<void(const Views&)>& then) {
  struct Gathering {
    Views views;
    std::size_t missing;
  };
  const std::vector<WorkerRef>& workers = control_.workers();
  auto gathering = std::make_shared<Gathering>();
  gathering->views.resize(workers.size(), error(ErrorCode::Unavailable, Reason::None, "not asked"));
  gathering->missing = workers.size();
  for (std::size_t i = 0; i < workers.size(); ++i) {
    workers[i].worker->inspect(replies_.on_loop<WorkerSnapshot>(
        "report", [gathering, i, then](Result<WorkerSnapshot> view) {
          gathering->views[i] = std::move(view);
          if (--gathering->missing == 0) then(gathering->views);
        }));
  }
}

void NodeAdmin::get_status(const Caller&, const v1::Empty&, Answer<v1::StatusReply> answer) {
  inspect([this, answer = std::move(answer)](const Views& views) {
    v1::StatusReply status;
    status.set_state(control_.stopping() ? "draining" : "ready");
    actions_.describe(status);
    std::uint64_t communicators = control_.rendezvous().forming().size();
    bool is_host_told = false;
    for (std::size_t i = 0; i < views.size(); ++i) {
      v1::WorkerStatus& worker = *status.add_workers();
      worker.set_device(control_.workers()[i].device);
      if (!views[i]) {
        worker.set_state("stuck");
        status.set_state("degraded: " + worker.device() + ": " + views[i].error().message);
        continue;
      }
      const WorkerSnapshot& view = *views[i];
      worker.set_state(view.state);
      worker.set_sessions(view.sessions.size());
      worker.set_operations_done(view.operations_done);
      worker.set_operations_failed(view.operations_failed);
      worker.set_operations_pending(view.operations_pending);
      worker.set_bytes_reduced(view.bytes_reduced);
      worker.set_busy_fraction(view.busy_fraction);
      if (!control_.workers()[i].worker->on_gpus() && !std::exchange(is_host_told, true)) {
        const InCallCounts::Sum in_call = metrics_.in_call.of_all();
        worker.set_operations_done(worker.operations_done() + in_call.operations);
        worker.set_bytes_reduced(worker.bytes_reduced() + in_call.bytes);
      }
      worker.set_slowest_turn_seconds(static_cast<double>(view.slowest_turn_ns) / kNsPerSecond);
      communicators += view.communicators.size();
    }
    status.set_sessions(control_.ledger().size());
    status.set_communicators(communicators);
    status.set_registered_bytes(control_.quotas().total(QuotaKind::RegisteredBytes));
    add_limits(control_, access_, status);
    answer(status);
  });
}

void NodeAdmin::list_sessions(const Caller&, const v1::Empty&, Answer<v1::SessionsReply> answer) {
  inspect([this, answer = std::move(answer)](const Views& views) {
    v1::SessionsReply reply;
    for (std::size_t i = 0; i < views.size(); ++i) {
      if (!views[i]) return answer(views[i].error());
      for (const SessionSnapshot& session : views[i]->sessions) {
        fill(session, control_.workers()[i].device, *reply.add_sessions());
      }
    }
    answer(reply);
  });
}

void NodeAdmin::list_communicators(const Caller&, const v1::Empty&,
                                   Answer<v1::CommunicatorsReply> answer) {
  inspect([this, answer = std::move(answer)](const Views& views) {
    v1::CommunicatorsReply reply;
    for (const Result<WorkerSnapshot>& view : views) {
      if (!view) return answer(view.error());
      for (const CommunicatorSnapshot& one : view->communicators) {
        v1::CommunicatorStatus& told = *reply.add_communicators();
        fill_status(one, told);
        if (const auto in_call = control_.in_call().find(one.unique_id, one.epoch))
          fill_status(*in_call, told);
      }
    }
    const auto now = std::chrono::steady_clock::now();
    for (const Rendezvous::Forming& one : control_.rendezvous().forming())
      fill_status(one, now, *reply.add_communicators());
    answer(reply);
  });
}

void NodeAdmin::get_metrics(const Caller&, const v1::Empty&,
                            const Answer<v1::MetricsReply>& answer) {
  v1::MetricsReply reply;
  reply.set_text(render_metrics(metrics_));
  answer(reply);
}

void NodeAdmin::trace(const Caller&, const v1::TraceRequest& request,
                      const Answer<v1::TraceReply>& answer) {
  FlightLog log;
  std::uint64_t lost = 0;
  if (request.previous()) log = actions_.previous_operations();
  for (const WorkerRef& worker : control_.workers()) {
    if (worker.recorder == nullptr || request.previous()) continue;
    // Before the snapshot, so that records written meanwhile are not counted as lost.
    const std::uint64_t written = worker.recorder->written();
    lost += written > worker.recorder->capacity() ? written - worker.recorder->capacity() : 0;
    log.append(worker.recorder->log());
  }
  v1::TraceReply reply =
      trace_reply(std::move(log), request, control_.workers().size() > 1,
                  [this](std::uint8_t algorithm) { return actions_.algorithm_name(algorithm); });
  reply.set_lost(lost);
  if (!request.previous() && !request.failed_only()) add_in_call(control_.in_call(), reply);
  answer(reply);
}

void NodeAdmin::reload(const Caller& caller, const v1::Empty&, Answer<v1::ReloadReply> answer) {
  log::audit("reload",
             {{"uid", std::to_string(caller.peer.uid)}, {"pid", std::to_string(caller.peer.pid)}});
  files_.post([this, answer = std::move(answer)] { answer(actions_.reload()); });
}

void NodeAdmin::tune(const Caller& caller, const v1::TuneRequest& request,
                     RpcStream<v1::TuneReply> stream) {
  if (stopping_) return stream.finish(shutting_down());
  if (tuning_->exchange(true)) {
    return stream.finish(
        error(ErrorCode::FailedPrecondition, Reason::None, "a tune is already running"));
  }
  if (tuner_.joinable()) tuner_.join();  // the last one has ended: it cleared the flag
  log::audit("tune",
             {{"uid", std::to_string(caller.peer.uid)}, {"pid", std::to_string(caller.peer.pid)}});
  try {
    tuner_ = std::thread([this, request, stream, tuning = tuning_] {
      const Status status = actions_.tune(
          request, stream.send, [this, &stream] { return stopping_.load() || stream.cancelled(); });
      tuning->store(false);
      stream.finish(status);
    });
  } catch (const std::system_error& failure) {
    tuning_->store(false);
    stream.finish(error(ErrorCode::ResourceExhausted, Reason::OutOfMemory, "no thread to tune on: ",
                        failure.what(), "; raise TasksMax= of the service, or try again later"));
  }
}

void NodeAdmin::explain(const Caller&, const v1::ExplainRequest& request,
                        const Answer<v1::ExplainReply>& answer) {
  answer(actions_.explain(request));
}

void NodeAdmin::get_net(const Caller&, const v1::Empty&, Answer<v1::NetReply> answer) {
  if (peers_ == nullptr) return answer(v1::NetReply{});
  inspect([this, answer = std::move(answer)](const Views& views) {
    v1::NetReply reply = net_status(*peers_, views);
    for (std::size_t i = 0; i < kNetDrops; ++i) {
      v1::NetDropped& dropped = *reply.add_dropped();
      dropped.set_reason(std::string(arcomm::text_of(static_cast<NetDrop>(i))));
      dropped.set_frames(metrics_.net_dropped[i].value());
    }
    answer(reply);
  });
}

}  // namespace arcomm
