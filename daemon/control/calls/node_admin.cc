#include "daemon/control/calls/node_admin.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "daemon/control/calls/limit_status.h"
#include "daemon/control/calls/net_status.h"
#include "daemon/plan/codec_words.h"
#include "daemon/plan/launch_table_builder.h"
#include "daemon/telemetry/flight_recorder.h"
#include "daemon/telemetry/log/log.h"
#include "daemon/telemetry/metrics/metrics.h"

namespace arcomm {
namespace {

constexpr std::chrono::milliseconds kInspectLimit{1000};

// The first 8 bytes of a unique id, as `arctl comms` and `arctl trace` print it.
std::string short_id(const std::byte* bytes) {
  static constexpr char kDigits[] = "0123456789abcdef";
  std::string text;
  for (std::size_t i = 0; i < 8; ++i) {
    text.push_back(kDigits[std::to_integer<unsigned>(bytes[i]) >> 4]);
    text.push_back(kDigits[std::to_integer<unsigned>(bytes[i]) & 15]);
  }
  return text;
}

v1::TraceRecord to_wire(const FlightRecord& record) {
  v1::TraceRecord wire;
  std::byte id[8];
  std::memcpy(id, &record.unique_id_prefix, sizeof(id));
  wire.set_number(record.number);
  wire.set_communicator(short_id(id));
  wire.set_epoch(record.epoch);
  wire.set_seq(record.seq);
  wire.set_rank(record.rank);
  wire.set_pid(record.pid);
  wire.set_dtype(std::string(text_of(record.dtype)));
  wire.set_op(std::string(text_of(record.op)));
  wire.set_collective(std::string(text_of(record.collective)));
  wire.set_codec(std::string(text_of(record.codec)));
  wire.set_of_error_class(record.codec_origin == CodecOrigin::ErrorClass);
  wire.set_send_count(record.send_count);
  wire.set_recv_count(record.recv_count);
  wire.set_code(static_cast<std::uint32_t>(record.code));
  wire.set_reason(static_cast<std::uint32_t>(record.reason));
  wire.set_culprit_rank(record.culprit);
  wire.set_submitted_ns(record.submitted_ns);
  wire.set_admitted_ns(record.admitted_ns);
  wire.set_matched_ns(record.matched_ns);
  wire.set_agreed_ns(record.agreed_ns);
  wire.set_launched_ns(record.launched_ns);
  wire.set_done_ns(record.done_ns);
  return wire;
}

void fill(const NetworkSteps& steps, v1::TraceNetwork& wire) {
  wire.set_nodes(steps.nodes);
  wire.set_posted_ns(steps.posted_ns);
  wire.set_sent_ns(steps.sent_ns);
  wire.set_arrived_ns(steps.arrived_ns);
  wire.set_credited_ns(steps.credited_ns);
  wire.set_sent_bytes(steps.sent_bytes);
  wire.set_received_bytes(steps.received_bytes);
}

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

const char* text_of(LaunchPath path) {
  switch (path) {
    case LaunchPath::Resident:
      return "resident";
    case LaunchPath::Launched:
      return "launched";
    case LaunchPath::InStream:
      return "in-stream";
    case LaunchPath::Alone:
      return "alone";
    case LaunchPath::InCall:
      return "in-call";
  }
  return "unknown";
}

// Types that take the same ways are told together; what the last ones have in common is the rest.
void fill(const LaunchTable& launches, v1::CommunicatorStatus& wire) {
  std::vector<std::pair<std::vector<LaunchStretch>, std::string>> ways;
  for (unsigned i = 0; i < kDTypes; ++i) {
    const auto dtype = static_cast<DType>(i);
    std::vector<LaunchStretch> way = stretches_of(launches, dtype);
    const std::string name(arcomm::text_of(dtype));
    const auto same = std::ranges::find(ways, way, &decltype(ways)::value_type::first);
    if (same == ways.end()) {
      ways.emplace_back(std::move(way), name);
    } else {
      same->second += ", " + name;
    }
  }
  if (ways.size() == 1) ways.front().second = "all types";
  if (ways.size() > 1) ways.back().second = "other types";
  for (const auto& [way, types] : ways) {
    for (const LaunchStretch& stretch : way) {
      v1::LaunchStretch& told = *wire.add_launches();
      told.set_types(types);
      told.set_path(text_of(stretch.path));
      told.set_most_bytes(stretch.most_bytes);
      if (stretch.launched) told.set_algorithm(std::string(name_of(*stretch.launched)));
      if (stretch.between_nodes)
        told.set_algorithm(std::string(arcomm::text_of(*stretch.between_nodes)));
    }
  }
}

void fill(const CommunicatorSnapshot& communicator, v1::CommunicatorStatus& wire) {
  wire.set_id(short_id(communicator.unique_id.data()));
  wire.set_epoch(communicator.epoch);
  wire.set_ranks(static_cast<std::int32_t>(communicator.ranks.size()));
  wire.set_state(communicator.state);
  wire.set_operations_done(communicator.operations_done);
  wire.set_operations_failed(communicator.operations_failed);
  wire.set_diagnosis(communicator.diagnosis);
  if (communicator.launches) fill(*communicator.launches, wire);
  wire.set_why_not_in_stream(communicator.why_not_in_stream);
  wire.set_why_no_slots(communicator.why_no_slots);
  wire.set_default_codec(to_string(communicator.default_coding));
  const CodecPlace place = communicator.spans_nodes ? CodecPlace::SeveralNodes
                           : communicator.launches  ? CodecPlace::Gpus
                                                    : CodecPlace::OneHost;
  wire.set_default_codec_becomes(codec_words(
      communicator.default_coding, place,
      communicator.launches.value_or(
          make_launch_table_on_host(static_cast<std::uint32_t>(communicator.ranks.size())))));
  for (const RankSnapshot& rank : communicator.ranks) {
    v1::RankStatus& member = *wire.add_members();
    member.set_rank(rank.rank);
    member.set_pid(rank.pid);
    member.set_session(rank.session.bits());
    member.set_last_seq(rank.next_seq);
    member.set_waiting(rank.waiting);
    member.set_node(rank.node);
  }
}

// What its ranks run without the worker.
void fill(const InCallExchange& in_call, v1::CommunicatorStatus& wire) {
  fill(in_call.launches(), wire);
  wire.set_why_not_in_call(in_call.why_not());
  const auto ranks = static_cast<std::uint64_t>(std::max(wire.ranks(), 1));
  wire.set_operations_done(wire.operations_done() + in_call.counted().operations / ranks);
  for (v1::RankStatus& rank : *wire.mutable_members())
    rank.set_last_seq(rank.last_seq() +
                      in_call.operations_of(static_cast<std::uint32_t>(rank.rank())));
}

void fill(const Rendezvous::Forming& forming, std::chrono::steady_clock::time_point now,
          v1::CommunicatorStatus& wire) {
  wire.set_id(short_id(forming.unique_id.data()));
  wire.set_epoch(forming.epoch);
  wire.set_ranks(forming.ranks);
  wire.set_state("forming " + std::to_string(forming.called.size()) + "/" +
                 std::to_string(forming.ranks));
  wire.set_diagnosis(forming.diagnosis);
  for (const Rendezvous::Forming::Caller& caller : forming.called) {
    v1::RankStatus& member = *wire.add_members();
    member.set_rank(caller.rank);
    member.set_pid(caller.pid);
    member.set_session(caller.session.bits());
    const auto since = std::chrono::duration_cast<std::chrono::milliseconds>(now - caller.since);
    member.set_waiting("the other ranks since " + std::to_string(since.count()) + " ms");
  }
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
        fill(one, told);
        if (const auto in_call = control_.in_call().find(one.unique_id, one.epoch))
          fill(*in_call, told);
      }
    }
    const auto now = std::chrono::steady_clock::now();
    for (const Rendezvous::Forming& one : control_.rendezvous().forming())
      fill(one, now, *reply.add_communicators());
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
  v1::TraceReply reply;
  std::uint64_t lost = 0;
  if (request.previous()) log = actions_.previous_operations();
  for (const WorkerRef& worker : control_.workers()) {
    if (worker.recorder == nullptr || request.previous()) continue;
    // Before the snapshot, so that records written meanwhile are not counted as lost.
    const std::uint64_t written = worker.recorder->written();
    lost += written > worker.recorder->capacity() ? written - worker.recorder->capacity() : 0;
    log.append(worker.recorder->log());
  }
  std::vector<FlightRecord>& records = log.operations;
  // An operation in flight is open, not failed: its code is Unknown and it has no end.
  if (request.failed_only()) {
    std::erase_if(records, [](const FlightRecord& one) {
      return one.code == ErrorCode::Ok || one.done_ns == 0;
    });
  }
  if (control_.workers().size() > 1) {
    std::stable_sort(records.begin(), records.end(),
                     [](const auto& a, const auto& b) { return a.admitted_ns < b.admitted_ns; });
  }
  const std::size_t wanted =
      request.last() == 0 ? records.size() : std::min<std::size_t>(request.last(), records.size());
  const NetworkStepsIndex network(log.network);
  for (std::size_t i = records.size() - wanted; i < records.size(); ++i) {
    v1::TraceRecord wire = to_wire(records[i]);
    std::uint8_t algorithm = records[i].algorithm;
    if (const NetworkSteps* steps = network.find(records[i])) {
      fill(*steps, *wire.mutable_network());
      // A record of what has not ended does not say it yet.
      if (algorithm == kNoAlgorithm) algorithm = steps->algorithm;
    }
    wire.set_algorithm(actions_.algorithm_name(algorithm));
    *reply.add_records() = std::move(wire);
  }
  reply.set_lost(lost);
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
