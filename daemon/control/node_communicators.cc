// NodeControl's calls about communicators and their members.
#include <algorithm>
#include <cstring>
#include <utility>

#include "daemon/control/node_control.h"
#include "daemon/telemetry/metrics/metrics.h"
#include "proto/types.h"

namespace arcomm {
namespace {

Error unknown_member(std::uint64_t bits, SessionId session) {
  return error(ErrorCode::NotFound, Reason::UnknownHandle, "communicator member ",
               MemberId::from_bits(bits), " is not one of session ", session);
}

}  // namespace

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
  const Result<std::string> gpu = gpu_of(**session, request.device());
  if (!gpu) return answer(gpu.error());
  call.on_gpu = worker_of(**session).on_gpus();
  if (call.on_gpu && std::cmp_greater(request.ranks(), kMaxGpuRanks)) {
    return answer(error(ErrorCode::Unimplemented, Reason::Unsupported,
                        "a communicator on GPUs has "
                        "1 to ",
                        kMaxGpuRanks, " ranks, one to a GPU, not ", request.ranks()));
  }
  Result<ChargePtr> charge = quotas_.charge(caller.peer.uid, QuotaKind::Communicators);
  if (!charge) return answer(charge.error());
  if (call.on_gpu) {
    if (Status promised = promise_ticket(**session); !promised) {
      charge->reset();
      return answer(promised.error());
    }
  }
  std::memcpy(call.unique_id.data(), request.unique_id().data(), call.unique_id.size());
  const std::uint64_t asked_ms =
      request.timeout_ms() == 0 ? parts_.settings->comm.join_timeout_ms : request.timeout_ms();
  call.serial = caller.call;
  call.rank = request.rank();
  call.ranks = request.ranks();
  call.session = (*session)->id;
  call.peer = (*session)->peer;
  call.worker = (*session)->worker;
  call.device = call.on_gpu ? *gpu : parts_.workers[call.worker].device;
  call.visible_gpus.assign(request.visible_gpus().begin(), request.visible_gpus().end());
  call.in_stream_abi = request.in_stream_abi();
  call.in_stream_hindrance = static_cast<InStreamHindrance>(request.in_stream_hindrance());
  call.launch_table_version = request.launch_table_version();
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
  return [this, id, unique_id, rank, holder,
          answer = std::move(answer)](Result<Rendezvous::Joined> result) {
    SessionEntry* session = ledger_.find(id);
    if (result && session == nullptr) {
      result = error(ErrorCode::Aborted, Reason::RemoteDied, "session ", id, " has ended");
    }
    if (!result) {
      holder->reset();
      if (session != nullptr && worker_of(*session).on_gpus()) --session->tickets_promised;
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
    if (worker_of(*session).on_gpus())
      return hand_over_mailbox(id, result->member, std::move(reply), answer);
    answer(reply);
  };
}

void NodeControl::hand_over_mailbox(SessionId id, MemberId member,
                                    v1::CreateCommunicatorReply reply,
                                    const Answer<v1::CreateCommunicatorReply>& answer) {
  worker_of(*ledger_.find(id))
      .export_mailbox(
          id, member,
          replies_.on_loop<MailboxDescriptors>(
              "hand over the mailbox", [this, id, member, reply = std::move(reply),
                                        answer](Result<MailboxDescriptors> mailbox) {
                SessionEntry* session = ledger_.find(id);
                if (session == nullptr) {
                  return answer(
                      error(ErrorCode::Aborted, Reason::RemoteDied, "session ", id, " has ended"));
                }
                --session->tickets_promised;
                if (!mailbox) {
                  // A seat without a mailbox serves nobody; the other ranks hear of it.
                  worker_of(*session).leave_communicator(id, member, [](const Status&) {});
                  session->members.erase(member);
                  return answer(mailbox.error());
                }
                v1::CreateCommunicatorReply filled = reply;
                filled.set_fd_ticket(ledger_.add_ticket(*session, std::move(mailbox->descriptors)));
                filled.set_mailbox_bytes(mailbox->mailbox_bytes);
                filled.set_exchange_bytes(mailbox->exchange_bytes);
                filled.set_launch_table(mailbox->launches.encode());
                filled.set_max_timeout_ms(parts_.settings->op.max_timeout_ms);
                answer(filled);
              }));
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
  if (held == (*session)->members.end()) return answer(unknown_member(request.member(), id));
  communicator_revoked(held->second.unique_id, held->second.epoch);
  worker_of(**session).leave_communicator(
      id, member,
      replies_.on_loop<void>(
          "leave the communicator",
          [this, id, member, answer = std::move(answer)](const Status& status) {
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
    return answer(unknown_member(request.member(), (*session)->id));
  }
  communicator_revoked(held->second.unique_id, held->second.epoch);
  worker_of(**session).abort_communicator(
      (*session)->id, held->first, request.why().substr(0, 200),
      replies_.on_loop<void>(
          "abort the communicator",
          [answer = std::move(answer)](const Status& status) { answer(empty_or(status)); }));
}

void NodeControl::communicator_revoked(const UniqueIdBytes& unique_id, std::uint64_t epoch) {
  rendezvous_.dissolve(unique_id, epoch);
  count_communicators();
}

void NodeControl::count_communicators() {
  parts_.metrics.communicators.set(static_cast<std::int64_t>(rendezvous_.ready()));
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
    return answer(unknown_member(request.member(), (*session)->id));
  }
  auto reply_with = [reply, rank = held->second.rank,
                     answer = std::move(answer)](Result<CommunicatorSnapshot> found) {
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
  };
  worker_of(**session).describe(
      (*session)->id, held->first,
      replies_.on_loop<CommunicatorSnapshot>("describe the communicator", std::move(reply_with)));
}

}  // namespace arcomm
