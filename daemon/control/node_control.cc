#include "daemon/control/node_control.h"

#include <fcntl.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "daemon/control/shared_memory.h"
#include "daemon/telemetry/log.h"
#include "daemon/telemetry/metrics.h"
#include "proto/ring/doorbell.h"
#include "proto/version.h"

namespace arcomm {
namespace {

constexpr std::size_t kNameCharacters = 64;

UniqueFd duplicate(int fd) {
  return UniqueFd(::fcntl(fd, F_DUPFD_CLOEXEC, 0));
}

Error no_descriptor() {
  return error(ErrorCode::ResourceExhausted, Reason::OutOfMemory,
               "no descriptor is left: ", std::strerror(errno),
               "; raise LimitNOFILE= of the service");
}

Error unknown(const char* what, std::uint64_t bits, SessionId session) {
  return error(ErrorCode::NotFound, Reason::UnknownHandle, what, " ", SessionId::from_bits(bits),
               " is not one of session ", session);
}

Result<v1::Empty> empty_or(const Status& status) {
  if (!status) return status.error();
  return v1::Empty{};
}

}  // namespace

NodeControl::NodeControl(Parts parts)
    : parts_(std::move(parts)),
      replies_(parts_.loop),
      quotas_(parts_.settings->quota, parts_.metrics),
      rendezvous_(
          [this](std::size_t worker, CommunicatorSeed seed, Rendezvous::Formed formed) {
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
                                    std::string why) { client_gone(session, std::move(why)); },
                    .released =
                        [this](uid_t uid) {
                          if (released_) released_(uid);
                        }}) {}

Status NodeControl::refuse_when_stopping() const {
  if (!stopping_) return {};
  return error(ErrorCode::Unavailable, Reason::ShuttingDown,
               "the daemon is shutting down; attach to the next one");
}

Result<SessionEntry*> NodeControl::authorize(const Caller& caller, const v1::SessionRef& session) {
  return ledger_.authorize(session.session(), session.session_token(), caller.peer.uid);
}

Result<std::size_t> NodeControl::find_worker(const std::string& device) const {
  if (device.empty()) return std::size_t{0};
  std::string known;
  for (std::size_t i = 0; i < parts_.workers.size(); ++i) {
    if (parts_.workers[i].device == device) return i;
    known += (known.empty() ? "" : ", ") + parts_.workers[i].device;
  }
  return error(ErrorCode::NotFound, Reason::BadValue, "no device \"",
               device.substr(0, kNameCharacters), "\" here; there is ", known);
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
  const Result<std::size_t> worker = find_worker(request.device());
  if (!worker) return answer(worker.error());
  Result<ChargePtr> charge = quotas_.charge(caller.peer.uid, QuotaKind::Sessions);
  if (!charge) return answer(charge.error());

  SessionEntry entry;
  entry.peer = caller.peer;
  entry.process_name = request.process_name().substr(0, kNameCharacters);
  entry.worker = *worker;
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
  const std::uint64_t ticket = ledger_.add_ticket(**opened, std::move(for_client));
  const auto in_flight = static_cast<std::uint32_t>(
      std::min<std::uint64_t>(parts_.settings->rings.slots, parts_.settings->quota.in_flight));
  SessionSeed seed{.id = id,
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
        reply.set_device(parts_.workers[session->worker].device);
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
  parts_.loop.cancel(entry->hello_deadline);
  if (entry->bound_to != 0) descriptors_.forget(entry->bound_to);
  // What the other ranks hear: a rank that left in good order is not a dead one.
  const Reason told = reason == Reason::None ? Reason::RemoteAborted : reason;
  rendezvous_.session_gone(id, entry->peer.pid, told);
  count_communicators();
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
                                      [entry, answer](const Status& status) {
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

void NodeControl::client_gone(SessionId session, std::string why) {
  close_session(session, Reason::RemoteDied, why, {});
}

void NodeControl::session_lost(SessionId session, Reason reason, std::string why) {
  close_session(session, reason, why, {});
}

void NodeControl::communicator_revoked(const UniqueIdBytes& unique_id, std::uint64_t epoch) {
  rendezvous_.dissolve(unique_id, epoch);
  count_communicators();
}

void NodeControl::count_communicators() {
  parts_.metrics.communicators.set(static_cast<std::int64_t>(rendezvous_.ready()));
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

void NodeControl::describe(const Caller& caller, const v1::DescribeRequest& request,
                           Answer<v1::DescribeReply> answer) {
  const Result<SessionEntry*> session = authorize(caller, request.session());
  if (!session) return answer(session.error());
  v1::DescribeReply reply;
  reply.set_state("open");
  reply.set_culprit_rank(kNoRank);
  if (request.member() == 0) return answer(reply);
  const auto held = (*session)->members.find(MemberId::from_bits(request.member()));
  if (held == (*session)->members.end()) {
    return answer(unknown("communicator member", request.member(), (*session)->id));
  }
  worker_of(**session).describe(
      (*session)->id, held->first,
      replies_.on_loop<CommunicatorSnapshot>(
          "describe the communicator",
          [reply, rank = held->second.rank, answer](Result<CommunicatorSnapshot> found) {
            if (!found) return answer(found.error());
            v1::DescribeReply filled = reply;
            filled.set_state(found->state);
            filled.set_reason(static_cast<std::uint32_t>(found->reason));
            filled.set_culprit_rank(found->culprit);
            filled.set_epoch(found->epoch);
            for (const RankSnapshot& one : found->ranks) {
              if (one.rank == rank) filled.set_next_seq(one.next_seq);
            }
            answer(filled);
          }));
}

// ---- communicators ----

void NodeControl::create_communicator(const Caller& caller,
                                      const v1::CreateCommunicatorRequest& request,
                                      Answer<v1::CreateCommunicatorReply> answer) {
  if (Status stopping = refuse_when_stopping(); !stopping) return answer(stopping.error());
  const Result<SessionEntry*> session = authorize(caller, request.session());
  if (!session) return answer(session.error());
  Rendezvous::Call call;
  if (request.unique_id().size() != call.unique_id.size()) {
    return answer(error(ErrorCode::InvalidArgument, Reason::BadValue, "a unique id has ",
                        call.unique_id.size(), " bytes; this one has ",
                        request.unique_id().size()));
  }
  Result<ChargePtr> charge = quotas_.charge(caller.peer.uid, QuotaKind::Communicators);
  if (!charge) return answer(charge.error());
  std::memcpy(call.unique_id.data(), request.unique_id().data(), call.unique_id.size());
  const std::uint64_t asked_ms =
      request.timeout_ms() == 0 ? parts_.settings->comm.join_timeout_ms : request.timeout_ms();
  call.serial = caller.call;
  call.rank = request.rank();
  call.ranks = request.ranks();
  call.session = (*session)->id;
  call.peer = (*session)->peer;
  call.worker = (*session)->worker;
  call.device = parts_.workers[call.worker].device;
  call.called_at = std::chrono::steady_clock::now();
  call.deadline = call.called_at +
                  std::chrono::milliseconds(std::min(asked_ms, parts_.settings->op.max_timeout_ms));
  call.answer =
      joined(call.session, call.unique_id, call.rank, std::move(charge).value(), std::move(answer));

  const std::optional<Rendezvous::Live> live =
      rendezvous_.live(call.unique_id, call.peer.uid, call.rank);
  if (!live) return join(std::move(call));
  // The rank is taken as far as we know; but the worker may have revoked that communicator just
  // now, and its client have heard of it sooner than we. Its answer comes after whatever it has
  // told us.
  if (call.serial != 0) looking_.insert(call.serial);
  parts_.workers[live->worker].worker->describe(
      live->session, live->member,
      replies_.on_loop<CommunicatorSnapshot>(
          "describe the communicator", [this, call, live](Result<CommunicatorSnapshot> found) {
            if (call.serial != 0 && looking_.erase(call.serial) == 0) {
              return call.answer(error(ErrorCode::Cancelled, Reason::None, "the caller of rank ",
                                       call.rank, " went away"));
            }
            if (found ? found->reason != Reason::None : found.error().code == ErrorCode::NotFound)
              communicator_revoked(call.unique_id, live->epoch);
            join(call);
          }));
}

void NodeControl::join(Rendezvous::Call call) {
  if (ledger_.find(call.session) == nullptr) {
    return call.answer(
        error(ErrorCode::Aborted, Reason::RemoteDied, "session ", call.session, " has ended"));
  }
  call.segment_limit_bytes = parts_.settings->op.segment_bytes;
  rendezvous_.join(std::move(call));
  arm_sweep();
}

// One timer however many call: at the earliest deadline, or somewhat too early once that call has
// been answered.
void NodeControl::arm_sweep() {
  const std::optional<Rendezvous::Clock::time_point> next = rendezvous_.next_deadline();
  if (!next || (sweep_ && sweep_->at <= *next)) return;
  if (sweep_) parts_.loop.cancel(*sweep_);
  sweep_ = parts_.loop.at(*next, [this] {
    sweep_.reset();
    rendezvous_.sweep(std::chrono::steady_clock::now());
    arm_sweep();
  });
}

void NodeControl::leave(std::size_t worker, SessionId session, MemberId member) {
  parts_.workers[worker].worker->leave_communicator(session, member, [](const Status&) {});
}

Rendezvous::Answer NodeControl::joined(SessionId id, const UniqueIdBytes& unique_id, Rank rank,
                                       ChargePtr charge,
                                       Answer<v1::CreateCommunicatorReply> answer) {
  // Held in one place: this function is copied, and the quota must be free before a refusal is
  // heard.
  auto holder = std::make_shared<ChargePtr>(std::move(charge));
  return [this, id, unique_id, rank, holder, answer](Result<Rendezvous::Joined> result) {
    SessionEntry* session = ledger_.find(id);
    if (result && session == nullptr) {
      result = error(ErrorCode::Aborted, Reason::RemoteDied, "session ", id, " has ended");
    }
    if (!result) {
      holder->reset();
      return answer(result.error());
    }
    // This rank's seat in an earlier epoch has no use any more; its holder need not give it back.
    std::erase_if(session->members, [&](const auto& held) {
      if (held.second.unique_id != unique_id || held.second.rank != rank) return false;
      worker_of(*session).leave_communicator(id, held.first, [](const Status&) {});
      return true;
    });
    count_communicators();
    session->members.emplace(result->member,
                             HeldMember{unique_id, result->epoch, rank, std::move(*holder)});
    v1::CreateCommunicatorReply reply;
    reply.set_segment_limit_bytes(result->segment_limit_bytes);
    reply.set_member(result->member.bits());
    reply.set_epoch(result->epoch);
    for (const std::string& device : result->rank_devices) reply.add_rank_devices(device);
    answer(reply);
  };
}

void NodeControl::cancel_communicator(std::uint64_t call) {
  looking_.erase(call);
  rendezvous_.cancel(call);
}

void NodeControl::destroy_communicator(const Caller& caller,
                                       const v1::DestroyCommunicatorRequest& request,
                                       Answer<v1::Empty> answer) {
  const Result<SessionEntry*> session = authorize(caller, request.session());
  if (!session) return answer(session.error());
  const SessionId id = (*session)->id;
  const MemberId member = MemberId::from_bits(request.member());
  const auto held = (*session)->members.find(member);
  if (held == (*session)->members.end())
    return answer(unknown("communicator member", request.member(), id));
  communicator_revoked(held->second.unique_id, held->second.epoch);
  worker_of(**session).leave_communicator(
      id, member,
      replies_.on_loop<void>(
          "leave the communicator",
          [this, id, member, answer](const Status& status) {
            SessionEntry* now = ledger_.find(id);
            if (now != nullptr && (status || status.error().code == ErrorCode::NotFound))
              now->members.erase(member);
            answer(empty_or(status));
          },
          [this, id, member](const Status&) {
            if (SessionEntry* now = ledger_.find(id); now != nullptr) now->members.erase(member);
          }));
}

void NodeControl::abort_communicator(const Caller& caller,
                                     const v1::AbortCommunicatorRequest& request,
                                     Answer<v1::Empty> answer) {
  const Result<SessionEntry*> session = authorize(caller, request.session());
  if (!session) return answer(session.error());
  const auto held = (*session)->members.find(MemberId::from_bits(request.member()));
  if (held == (*session)->members.end()) {
    return answer(unknown("communicator member", request.member(), (*session)->id));
  }
  communicator_revoked(held->second.unique_id, held->second.epoch);
  worker_of(**session).abort_communicator(
      (*session)->id, held->first, request.why().substr(0, 200),
      replies_.on_loop<void>("abort the communicator",
                             [answer](const Status& status) { answer(empty_or(status)); }));
}

}  // namespace arcomm
