// NodeControl itself, and its calls about sessions.
#include "daemon/control/node_control.h"

#include <fcntl.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "daemon/control/descriptors/shared_memory.h"
#include "daemon/telemetry/log/log.h"
#include "daemon/telemetry/metrics/metrics.h"
#include "proto/ring/doorbell.h"
#include "proto/version.h"

namespace arcomm {
namespace {

constexpr std::size_t kNameCharacters = 64;

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

NodeControl::NodeControl(Parts parts)
    : parts_(std::move(parts)),
      replies_(parts_.loop),
      quotas_(parts_.settings->quota, parts_.metrics),
      rendezvous_(
          [this](std::size_t worker, CommunicatorSpec seed, Rendezvous::Formed formed) {
            auto undo = [this, worker, ranks = seed.ranks](Result<std::vector<MemberId>> late) {
              for (std::size_t i = 0; late && i < std::min(ranks.size(), late->size()); ++i)
                leave(worker, ranks[i].session, (*late)[i]);
            };
            parts_.workers[worker].worker->form_communicator(
                std::move(seed), replies_.on_loop<std::vector<MemberId>>(
                                     "form the communicator", std::move(formed), std::move(undo)));
          },
          [this](std::size_t worker, SessionId session, MemberId member) {
            leave(worker, session, member);
          }),
      descriptors_({.loop = parts_.loop,
                    .ledger = ledger_,
                    .ended = [this](SessionId session,
                                    const std::string& why) { client_gone(session, why); },
                    .released =
                        [this](uid_t uid) {
                          if (released_) released_(uid);
                        }}),
      fair_prefault_(
          {.loop = parts_.loop, .thread = parts_.memory_thread, .closer = memory_closer_}) {}

Status NodeControl::refuse_when_stopping() const {
  if (!stopping_) return {};
  return error(ErrorCode::Unavailable, Reason::ShuttingDown,
               "the daemon is shutting down; attach to the next one");
}

Result<SessionEntry*> NodeControl::authorize(const Caller& caller, const v1::SessionRef& session) {
  return ledger_.authorize(session.session(), session.session_token(), caller.peer.uid);
}

Result<NodeControl::Place> NodeControl::find_device(const std::string& device) const {
  if (device.empty()) return Place{};
  std::string known;
  for (std::size_t i = 0; i < parts_.workers.size(); ++i) {
    const WorkerRef& worker = parts_.workers[i];
    if (worker.device == device) return Place{i, {}};
    known += (known.empty() ? "" : ", ") + worker.device;
    for (const std::string& gpu : worker.gpus) {
      if (gpu == device) return Place{i, gpu};
      known += ", " + gpu;
    }
  }
  return error(ErrorCode::NotFound, Reason::BadValue, "no device \"",
               device.substr(0, kNameCharacters), "\" here; there is ", known);
}

Result<std::string> NodeControl::gpu_of(const SessionEntry& session,
                                        const std::string& named) const {
  const WorkerRef& worker = parts_.workers[session.worker];
  if (worker.gpus.empty()) {
    if (named.empty() || named == worker.device) return std::string();
    return error(ErrorCode::InvalidArgument, Reason::BadValue, "session ", session.id, " is on ",
                 worker.device, " and cannot use \"", named.substr(0, kNameCharacters),
                 "\": attach to that device");
  }
  if (named.empty()) return session.gpu.empty() ? worker.gpus.front() : session.gpu;
  std::string known;
  for (const std::string& gpu : worker.gpus) {
    if (gpu == named) return gpu;
    known += (known.empty() ? "" : ", ") + gpu;
  }
  return error(ErrorCode::NotFound, Reason::BadValue, "no GPU \"", named.substr(0, kNameCharacters),
               "\" here; there is ", known);
}

Status NodeControl::promise_ticket(SessionEntry& session) {
  if (session.tickets.size() + session.tickets_promised >= kMaxTickets) {
    return error(ErrorCode::ResourceExhausted, Reason::Quota, "session ", session.id, " has ",
                 kMaxTickets,
                 " buffers or mailboxes whose descriptors it did not fetch: fetch them first");
  }
  ++session.tickets_promised;
  return {};
}

void NodeControl::attach(const Caller& caller, const v1::AttachRequest& request,
                         Answer<v1::AttachReply> answer) {
  if (Status stopping = refuse_when_stopping(); !stopping) return answer(stopping.error());
  if (request.ring_abi_major() != kRingAbiMajor) {
    return answer(error(ErrorCode::FailedPrecondition, Reason::Version,
                        "this daemon's ring version is ", kRingAbiMajor, ".", kRingAbiMinor,
                        " and the client's is ", request.ring_abi_major(), ".",
                        request.ring_abi_minor(), ": install the same major version of both"));
  }
  const Result<Place> place = find_device(request.device());
  if (!place) return answer(place.error());
  const std::optional<uid_t> only_uid = parts_.workers[place->worker].only_uid;
  if (only_uid && *only_uid != caller.peer.uid)
    return answer(not_served(caller.peer.uid, *only_uid));
  Result<ChargePtr> charge = quotas_.charge(caller.peer.uid, QuotaKind::Sessions);
  if (!charge) return answer(charge.error());

  SessionEntry entry;
  entry.peer = caller.peer;
  entry.process_name = request.process_name().substr(0, kNameCharacters);
  entry.worker = place->worker;
  entry.gpu = place->gpu;
  entry.on_gpus = parts_.workers[place->worker].worker->on_gpus();
  entry.attached_over = caller.connection;
  entry.attached_at = std::chrono::steady_clock::now();
  entry.charge = std::move(charge).value();
  const Result<SessionEntry*> opened = ledger_.open(std::move(entry));
  if (!opened) return answer(opened.error());
  const SessionId id = (*opened)->id;

  // From here a failure must close the ledger's entry again.
  const auto give_up = [&](const Error& why) {
    ledger_.close(id, why.reason, why.message);
    answer(why);
  };
  Result<ring::Segment> segment =
      ring::Segment::create(static_cast<std::uint32_t>(parts_.settings->rings.slots), id);
  if (!segment) return give_up(segment.error());
  Result<UniqueFd> doorbell = ring::EventDoorbell::create();
  if (!doorbell) return give_up(doorbell.error());
  std::vector<UniqueFd> for_client;
  for_client.push_back(duplicate(segment->fd()));
  for_client.push_back(duplicate(doorbell->get()));
  if (!for_client[0] || !for_client[1]) return give_up(no_descriptor());
  parts_.kept_rings.keep(id, segment->fd());
  const std::uint64_t ticket = ledger_.add_ticket(**opened, std::move(for_client));
  const auto in_flight = static_cast<std::uint32_t>(
      std::min<std::uint64_t>(parts_.settings->rings.slots, parts_.settings->quota.in_flight));
  SessionSpec seed{.id = id,
                   .peer = caller.peer,
                   .process_name = (*opened)->process_name,
                   .segment = std::move(segment).value(),
                   .doorbell = std::move(doorbell).value(),
                   .limits = {.max_in_flight = in_flight}};
  (*opened)->hello_deadline = parts_.loop.after(kHelloTimeout, [this, id] {
    close_session(id, Reason::Timeout, "no Hello came on the descriptor socket within 5 s", {});
  });
  worker_of(**opened).open_session(
      std::move(seed), replies_.on_loop<void>("open the session", [this, id, ticket, in_flight,
                                                                   answer](const Status& status) {
        SessionEntry* session = ledger_.find(id);
        if (!status || session == nullptr) {
          const Error why =
              !status ? status.error()
                      : error(ErrorCode::Aborted, Reason::RemoteDied, "the client hung up");
          close_session(id, why.reason, why.message, {});
          return answer(why);
        }
        parts_.metrics.sessions_opened.add();
        log::info("session {} attached: pid {} uid {} \"{}\" on {}", fmt::streamed(id),
                  session->peer.pid, session->peer.uid, session->process_name,
                  parts_.workers[session->worker].device);
        v1::AttachReply reply;
        reply.set_session(id.bits());
        reply.set_session_token(session->token.data(), session->token.size());
        reply.set_fd_ticket(ticket);
        reply.set_daemon_version(kVersionNumber);
        const WorkerRef& worker = parts_.workers[session->worker];
        reply.set_device(session->gpu.empty() ? worker.device : session->gpu);
        reply.set_on_gpus(worker.worker->on_gpus());
        if (worker.worker->on_gpus()) reply.set_max_chunks(kMostChunks);
        reply.set_default_timeout_ms(parts_.settings->op.default_timeout_ms);
        reply.set_segment_limit_bytes(parts_.settings->op.segment_bytes);
        reply.set_max_in_flight(in_flight);
        answer(reply);
      }));
}

void NodeControl::detach(const Caller& caller, const v1::DetachRequest& request,
                         Answer<v1::Empty> answer) {
  const Result<SessionEntry*> session = authorize(caller, request.session());
  if (!session) return answer(session.error());
  close_session((*session)->id, Reason::None, "detached", std::move(answer));
}

// Reason::None is an orderly end. `answer` may be empty.
void NodeControl::close_session(SessionId id, Reason reason, const std::string& why,
                                Answer<v1::Empty> answer) {
  const std::shared_ptr<SessionEntry> entry = ledger_.close(id, reason, why);
  if (entry == nullptr) {
    if (answer) answer(v1::Empty{});
    return;
  }
  parts_.kept_rings.release(id);
  parts_.loop.cancel(entry->hello_deadline);
  if (entry->bound_to != 0) descriptors_.forget(entry->bound_to);
  // What the other ranks hear: a rank that left in good order is not a dead one.
  const Reason told = reason == Reason::None ? Reason::RemoteAborted : reason;
  rendezvous_.session_gone(id, entry->peer.pid, told);
  count_communicators();
  fair_prefault_.drop_session(
      id, error(ErrorCode::Aborted, Reason::RemoteDied, "session ", id, " has ended"));
  const std::string name = entry->process_name;
  if (reason == Reason::None || reason == Reason::RemoteDied) {
    log::info("session {} ended: pid {} uid {} \"{}\": {}", fmt::streamed(id), entry->peer.pid,
              entry->peer.uid, name, why);
  } else {
    log::warn("session {} closed: pid {} uid {} \"{}\": {} ({})", fmt::streamed(id),
              entry->peer.pid, entry->peer.uid, name, why, name_of(reason));
  }
  if (reason != Reason::None) parts_.metrics.sessions_lost[reason].add();
  for (auto& [ticket, fds] : entry->tickets) {
    for (UniqueFd& fd : fds) memory_closer_.close(std::move(fd));
  }
  for (auto& [ticket, fd] : entry->offers) memory_closer_.close(std::move(fd));
  entry->tickets.clear();
  entry->offers.clear();
  // The entry, and with it the quota, lives until the worker has let go of the memory.
  worker_of(*entry).close_session(id, told, why,
                                  replies_.on_loop<void>(
                                      "close the session",
                                      [entry, answer = std::move(answer)](const Status& status) {
                                        const ErrorCode code =
                                            status ? ErrorCode::Ok : status.error().code;
                                        // Before the answer: whoever hears it may take the same
                                        // quota again. A worker that is late still has the memory.
                                        if (code != ErrorCode::DeadlineExceeded) *entry = {};
                                        if (code == ErrorCode::NotFound)
                                          return answer ? answer(v1::Empty{}) : void();
                                        if (answer) answer(empty_or(status));
                                      },
                                      [entry](const Status&) { *entry = {}; }));
}

void NodeControl::connection_hung_up(ConnectionNumber connection) {
  std::vector<SessionId> orphans;
  ledger_.for_each([&](const SessionEntry& session) {
    if (session.attached_over == connection && session.bound_to == 0) orphans.push_back(session.id);
  });
  for (const SessionId id : orphans) {
    close_session(id, Reason::RemoteDied, "its connection dropped before the Hello", {});
  }
}

void NodeControl::client_gone(SessionId session, const std::string& why) {
  close_session(session, Reason::RemoteDied, why, {});
}

void NodeControl::session_lost(SessionId session, Reason reason, const std::string& why) {
  close_session(session, reason, why, {});
}

void NodeControl::use_settings(std::shared_ptr<const Settings> settings) {
  parts_.settings = std::move(settings);
  quotas_.use_limits(parts_.settings->quota);
}

void NodeControl::begin_shutdown() {
  stopping_ = true;
  rendezvous_.fail_all(refuse_when_stopping().error());
  count_communicators();
}

}  // namespace arcomm
