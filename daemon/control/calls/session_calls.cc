#include "daemon/control/calls/session_calls.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "daemon/control/calls/charge_with_room.h"
#include "daemon/control/descriptors/shared_memory.h"
#include "daemon/telemetry/log/log.h"
#include "daemon/telemetry/metrics/metrics.h"
#include "proto/ring/doorbell.h"
#include "proto/text.h"
#include "proto/version.h"

namespace arcomm {
namespace {

Error no_descriptor() {
  return error(ErrorCode::ResourceExhausted, Reason::OutOfMemory,
               "no descriptor is left: ", std::strerror(errno),
               "; raise LimitNOFILE= of the service");
}

Error not_served(uid_t asking, uid_t served) {
  return error(ErrorCode::PermissionDenied, Reason::Permission,
               "the GPUs of this daemon are for uid ", served,
               ", its own, and this process has uid ", asking,
               ": the MPS server that it manages (gpu.mps = \"manage\") serves no other user. Run "
               "as uid ",
               served,
               ", or have root start nvidia-cuda-mps-control -d -multiuser-server before arcommd, "
               "name its CUDA_MPS_PIPE_DIRECTORY to arcommd and here, and set gpu.mps to "
               "\"require\"; device host:0 serves everybody");
}

}  // namespace

SessionCalls::SessionCalls(Parts parts)
    : state_(parts.state),
      kept_rings_(parts.kept_rings),
      joins_(parts.joins),
      buffers_(parts.buffers),
      groups_(parts.groups),
      descriptors_(
          {.loop = state_.loop,
           .ledger = state_.ledger,
           .ended = [this](SessionId session,
                           const std::string& why) { close(session, Reason::RemoteDied, why, {}); },
           .released =
               [this](uid_t uid) {
                 if (released_) released_(uid);
               }}) {}

void SessionCalls::attach(const Caller& caller, const v1::AttachRequest& request,
                          Answer<v1::AttachReply> answer) {
  if (Status stopping = state_.refuse_when_stopping(); !stopping) return answer(stopping.error());
  if (request.ring_abi_major() != kRingAbiMajor) {
    return answer(error(ErrorCode::FailedPrecondition, Reason::Version,
                        "this daemon's ring version is ", kRingAbiMajor, ".", kRingAbiMinor,
                        " and the client's is ", request.ring_abi_major(), ".",
                        request.ring_abi_minor(), ": install the same major version of both"));
  }
  const Result<NodeDevices::Place> place = state_.devices.find(request.device());
  if (!place) return answer(place.error());
  const std::optional<uid_t> only_uid = state_.devices.workers()[place->worker].only_uid;
  if (only_uid && *only_uid != caller.peer.uid)
    return answer(not_served(caller.peer.uid, *only_uid));
  auto entry = std::make_shared<SessionEntry>();
  entry->peer = caller.peer;
  entry->process_name = safe_text(request.process_name(), kNameBytes);
  entry->worker = place->worker;
  entry->gpu = place->gpu;
  entry->on_gpus = state_.devices.workers()[place->worker].worker->on_gpus();
  entry->attached_over = caller.connection;
  attaching_.insert(entry);
  charge_with_room(state_,
                   {.uid = caller.peer.uid,
                    .waits_until_ns = caller.waits_until_ns,
                    .demands = {{state_.quotas.shares(QuotaKind::Sessions), 1, false},
                                {state_.quotas.shares(QuotaKind::Mappings), 1}},
                    .charge = [this, entry] { return charge(*entry); }},
                   [this, entry, answer = std::move(answer)](const Status& charged) {
                     const bool has_left = attaching_.erase(entry) == 0;
                     if (charged && !has_left) return open(std::move(*entry), answer);
                     *entry = {};
                     answer(has_left ? error(ErrorCode::Cancelled, Reason::None,
                                             "the client hung up while its session waited for room")
                                     : charged.error());
                   });
}

Status SessionCalls::charge(SessionEntry& entry) {
  Result<ChargePtr> session = state_.quotas.charge(entry.peer.uid, QuotaKind::Sessions);
  if (!session) return std::move(session).error();
  Result<ChargePtr> mapping = state_.quotas.charge(entry.peer.uid, QuotaKind::Mappings);
  if (!mapping) return std::move(mapping).error();
  entry.charge = std::move(session).value();
  entry.mapping = std::move(mapping).value();
  return {};
}

void SessionCalls::open(SessionEntry entry, const Answer<v1::AttachReply>& answer) {
  entry.attached_at = std::chrono::steady_clock::now();
  const Result<SessionEntry*> opened = state_.ledger.open(std::move(entry));
  if (!opened) return answer(opened.error());
  const SessionId id = (*opened)->id;

  // From here a failure must close the ledger's entry again.
  const auto give_up = [&](const Error& why) {
    state_.ledger.close(id, why.reason, why.message);
    answer(why);
  };
  // Not charged to the process's control groups, as other memory is: at Attach nobody has looked at
  // them, and whoever attaches is not to wait for that behind others' memory (fair_prefault.h). It
  // is bounded all the same, by quota.sessions times 68 KB (of rings.slots = 256).
  Result<ring::Segment> segment =
      ring::Segment::create(static_cast<std::uint32_t>(state_.settings->rings.slots), id,
                            ring::kErrorClasses | ((*opened)->on_gpus ? ring::kPlansInRing : 0));
  if (!segment) return give_up(segment.error());
  Result<UniqueFd> doorbell = ring::EventDoorbell::create();
  if (!doorbell) return give_up(doorbell.error());
  std::vector<UniqueFd> for_client;
  for_client.push_back(duplicate(segment->fd()));
  for_client.push_back(duplicate(doorbell->get()));
  if (!for_client[0] || !for_client[1]) return give_up(no_descriptor());
  kept_rings_.keep(id, segment->fd());
  const std::uint64_t ticket = state_.ledger.add_ticket(**opened, std::move(for_client));
  const auto in_flight = static_cast<std::uint32_t>(
      std::min<std::uint64_t>(state_.settings->rings.slots, state_.settings->quota.in_flight));
  SessionSpec spec{.id = id,
                   .peer = (*opened)->peer,
                   .process_name = (*opened)->process_name,
                   .segment = std::move(segment).value(),
                   .doorbell = std::move(doorbell).value(),
                   .limits = {.max_in_flight = in_flight}};
  (*opened)->hello_deadline = state_.loop.after(kHelloTimeout, [this, id] {
    close(id, Reason::Timeout, "no Hello came on the descriptor socket within 5 s", {});
  });
  state_.worker_of(**opened).open_session(
      std::move(spec),
      state_.replies.on_loop<void>(
          "open the session", [this, id, ticket, in_flight, answer](const Status& status) {
            SessionEntry* session = state_.ledger.find(id);
            if (!status || session == nullptr) {
              const Error why =
                  !status ? status.error()
                          : error(ErrorCode::Aborted, Reason::RemoteDied, "the client hung up");
              close(id, why.reason, why.message, {});
              return answer(why);
            }
            state_.metrics.sessions_opened.add();
            log::info_of(log::About::Sessions, session->peer.uid,
                         "session {} attached: pid {} uid {} \"{}\" on {}", fmt::streamed(id),
                         session->peer.pid, session->peer.uid, session->process_name,
                         state_.devices.workers()[session->worker].device);
            v1::AttachReply reply;
            reply.set_session(id.bits());
            reply.set_session_token(session->token.data(), session->token.size());
            reply.set_fd_ticket(ticket);
            reply.set_daemon_version(kVersionNumber);
            const WorkerRef& worker = state_.devices.workers()[session->worker];
            reply.set_device(session->gpu.empty() ? worker.device : session->gpu);
            reply.set_on_gpus(worker.worker->on_gpus());
            if (worker.worker->on_gpus()) reply.set_max_chunks(kMostChunks);
            reply.set_default_timeout_ms(state_.settings->op.default_timeout_ms);
            reply.set_segment_limit_bytes(state_.settings->op.segment_bytes);
            reply.set_max_in_flight(in_flight);
            if (state_.peers != nullptr) reply.set_peer_address(state_.peers->self().address);
            answer(reply);
            // Memory of the host is charged to them: they are known by the time it asks for some.
            if (!worker.worker->on_gpus()) groups_.look(id, 0, [](const auto&) {});
          }));
}

void SessionCalls::detach(const Caller& caller, const v1::DetachRequest& request,
                          Answer<v1::Empty> answer) {
  const Result<SessionEntry*> session = state_.authorize(caller, request.session());
  if (!session) return answer(session.error());
  close((*session)->id, Reason::None, "detached", std::move(answer));
}

void SessionCalls::close(SessionId id, Reason reason, const std::string& why,
                         Answer<v1::Empty> answer) {
  const std::shared_ptr<SessionEntry> entry = state_.ledger.close(id, reason, why);
  if (entry == nullptr) {
    if (answer) answer(v1::Empty{});
    return;
  }
  kept_rings_.release(id);
  state_.loop.cancel(entry->hello_deadline);
  if (entry->bound_to != 0) descriptors_.forget(entry->bound_to);
  // What the other ranks hear: a rank that left in good order is not a dead one.
  const Reason told = reason == Reason::None ? Reason::RemoteAborted : reason;
  joins_.session_gone(id, entry->peer.pid, told);
  buffers_.session_gone(id);
  const std::string name = entry->process_name;
  if (reason == Reason::None || reason == Reason::RemoteDied) {
    log::info_of(log::About::Sessions, entry->peer.uid,
                 "session {} ended: pid {} uid {} \"{}\": {}", fmt::streamed(id), entry->peer.pid,
                 entry->peer.uid, name, why);
  } else {
    log::warn_of(log::About::Sessions, entry->peer.uid,
                 "session {} closed: pid {} uid {} \"{}\": {} ({})", fmt::streamed(id),
                 entry->peer.pid, entry->peer.uid, name, why, name_of(reason));
  }
  if (reason != Reason::None) state_.metrics.sessions_lost[reason].add();
  for (auto& [ticket, fds] : entry->tickets) {
    for (UniqueFd& fd : fds) state_.memory_closer.close(std::move(fd));
  }
  for (auto& [ticket, fd] : entry->offers) state_.memory_closer.close(std::move(fd));
  entry->tickets.clear();
  entry->offers.clear();
  // The entry, and with it the quota, lives until the worker has let go of the memory.
  state_.worker_of(*entry).close_session(
      id, told, why,
      state_.replies.on_loop<void>(
          "close the session",
          [entry, answer = std::move(answer)](const Status& status) {
            const ErrorCode code = status ? ErrorCode::Ok : status.error().code;
            // Before the answer: whoever hears it may take the same
            // quota again, but for what GPU memory was charged that has
            // not gone yet. A worker that is late still has the memory.
            if (code != ErrorCode::DeadlineExceeded) *entry = {};
            if (code == ErrorCode::NotFound) return answer ? answer(v1::Empty{}) : void();
            if (answer) answer(empty_or(status));
          },
          [entry](const Status&) { *entry = {}; }));
}

void SessionCalls::connection_hung_up(ConnectionNumber connection) {
  std::erase_if(attaching_,
                [connection](const auto& entry) { return entry->attached_over == connection; });
  std::vector<SessionId> orphans;
  state_.ledger.for_each([&](const SessionEntry& session) {
    if (session.attached_over == connection && session.bound_to == 0) orphans.push_back(session.id);
  });
  for (const SessionId id : orphans) {
    close(id, Reason::RemoteDied, "its connection dropped before the Hello", {});
  }
}

void SessionCalls::lost(SessionId session, Reason reason, const std::string& why) {
  close(session, reason, why, {});
}

}  // namespace arcomm
