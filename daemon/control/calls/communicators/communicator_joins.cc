#include "daemon/control/calls/communicators/communicator_joins.h"

#include <algorithm>
#include <utility>

#include "daemon/plan/launch_table_between_nodes.h"
#include "daemon/telemetry/metrics/metrics.h"

namespace arcomm {

CommunicatorJoins::CommunicatorJoins(ControlState& state, SessionGroups& groups)
    : state_(state),
      groups_(groups),
      rendezvous_(
          [this](std::size_t worker, CommunicatorSpec spec, Rendezvous::Formed formed) {
            auto undo = [this, worker, ranks = spec.ranks](Result<std::vector<MemberId>> late) {
              for (std::size_t i = 0; late && i < std::min(ranks.size(), late->size()); ++i)
                leave(worker, ranks[i].session, (*late)[i]);
            };
            state_.devices.workers()[worker].worker->form_communicator(
                std::move(spec), state_.replies.on_loop<std::vector<MemberId>>(
                                     "form the communicator", std::move(formed), std::move(undo)));
          },
          [this](std::size_t worker, SessionId session, MemberId member) {
            leave(worker, session, member);
          }) {}

void CommunicatorJoins::join(SessionEntry& session, Rendezvous::Call call,
                             Answer<v1::CreateCommunicatorReply> answer) {
  Result<ChargePtr> charge = state_.quotas.charge(session.peer.uid, QuotaKind::Communicators);
  if (!charge) return answer(charge.error());
  HeldMember member{.unique_id = call.unique_id,
                    .rank = call.rank,
                    .charge = std::move(charge).value(),
                    .seat = {},
                    .place = {},
                    .in_stream = {},
                    .memory = {},
                    .gpu = call.on_gpu ? call.device : "",
                    .in_call = {}};
  if (call.on_gpu) {
    if (Status taken = take_places(session, call, member); !taken) {
      member = {};
      return answer(taken.error());
    }
    member.memory = std::make_shared<GpuShares::SharePtr>();
    call.token = state_.at_workers.token_of(session.peer.uid, member.memory);
  }
  // A client that reads another table version gets no memory on the host.
  const bool gets_ticket = call.on_gpu || call.launch_table_version == kLaunchTableVersion;
  if (gets_ticket) {
    if (Status promised = state_.ledger.promise_ticket(session); !promised) {
      member = {};
      return answer(promised.error());
    }
  }
  call.answer = joined(call, std::move(member), gets_ticket, std::move(answer));
  if (!may_pay_for_in_call(call)) return replace_earlier(std::move(call));
  groups_.look(call.session, call.serial,
               [this, call](const Result<const std::vector<MemoryGroup>*>& groups) {
                 if (!groups) return call.answer(groups.error());
                 replace_earlier(call);
               });
}

bool CommunicatorJoins::may_pay_for_in_call(const Rendezvous::Call& call) const {
  return !call.on_gpu && call.rank == 0 && state_.settings->host.in_call_bytes != 0 &&
         call.ranks > 1 && std::cmp_less_equal(call.ranks, kMaxInCallRanks) &&
         call.launch_table_version == kLaunchTableVersion;
}

void CommunicatorJoins::replace_earlier(Rendezvous::Call call) {
  const std::optional<Rendezvous::Live> live =
      rendezvous_.live(call.unique_id, call.peer.uid, call.rank);
  if (!live) return enter(std::move(call));
  // The rank is taken as far as we know; but the worker may have revoked that communicator just
  // now, and its client have heard of it sooner than we. Its answer comes after whatever it has
  // told us.
  if (call.serial != 0) looking_.insert(call.serial);
  state_.devices.workers()[live->worker].worker->describe(
      live->session, live->member,
      state_.replies.on_loop<CommunicatorSnapshot>(
          "describe the communicator", [this, call, live](Result<CommunicatorSnapshot> found) {
            if (call.serial != 0 && looking_.erase(call.serial) == 0) {
              return call.answer(error(ErrorCode::Cancelled, Reason::None, "the caller of rank ",
                                       call.rank, " went away"));
            }
            if (found ? found->reason != Reason::None : found.error().code == ErrorCode::NotFound)
              revoked(call.unique_id, live->epoch);
            enter(call);
          }));
}

Status CommunicatorJoins::take_places(const SessionEntry& session, Rendezvous::Call& call,
                                      HeldMember& member) {
  const uid_t uid = session.peer.uid;
  Result<GpuShares::SharePtr> place = state_.gpu_shares.take(uid, call.device, GpuResource::Ranks);
  if (!place) return place.error();
  member.place = std::move(place).value();
  if (call.ranks == 1) return {};
  Result<GpuShares::SharePtr> seat =
      state_.gpu_shares.take(uid, call.device, GpuResource::Communicators);
  if (!seat) return seat.error();
  member.seat = std::move(seat).value();
  // SMs for in-stream operations are few, and nobody is refused who gets none: those operations
  // run in other ways. So a user has them all until another one comes. What an earlier epoch
  // had is given back when this one is there.
  const auto earlier = std::ranges::count_if(session.members, [&](const auto& held) {
    return held.second.unique_id == call.unique_id && held.second.gpu == call.device &&
           held.second.in_stream != nullptr;
  });
  if (state_.ledger.has_others_on_gpus(uid) &&
      state_.gpu_shares.has_all(uid, call.device, GpuResource::InStream,
                                static_cast<std::uint64_t>(earlier))) {
    call.in_stream_hindrance = InStreamHindrance::KeptForOthers;
  } else {
    member.in_stream = state_.gpu_shares.note(uid, call.device, GpuResource::InStream, 1);
  }
  return {};
}

void CommunicatorJoins::enter(Rendezvous::Call call) {
  if (Status stopping = state_.refuse_when_stopping(); !stopping)
    return call.answer(stopping.error());
  if (state_.ledger.find(call.session) == nullptr) {
    return call.answer(
        error(ErrorCode::Aborted, Reason::RemoteDied, "session ", call.session, " has ended"));
  }
  call.segment_limit_bytes = state_.settings->op.segment_bytes;
  rendezvous_.join(std::move(call));
  arm_sweep();
}

// One timer however many call: at the earliest deadline, or somewhat too early once that call has
// been answered.
void CommunicatorJoins::arm_sweep() {
  const std::optional<Rendezvous::Clock::time_point> next = rendezvous_.next_deadline();
  if (!next || (sweep_ && sweep_->at <= *next)) return;
  if (sweep_) state_.loop.cancel(*sweep_);
  sweep_ = state_.loop.at(*next, [this] {
    sweep_.reset();
    rendezvous_.sweep(std::chrono::steady_clock::now());
    arm_sweep();
  });
}

void CommunicatorJoins::leave(std::size_t worker, SessionId session, MemberId member) {
  state_.devices.workers()[worker].worker->leave_communicator(session, member,
                                                              [](const Status&) {});
}

Rendezvous::Answer CommunicatorJoins::joined(const Rendezvous::Call& call, HeldMember member,
                                             bool gets_ticket,
                                             Answer<v1::CreateCommunicatorReply> answer) {
  // Held in one place: this function is copied, and the quota must be free before a refusal is
  // heard.
  auto holder = std::make_shared<HeldMember>(std::move(member));
  return [this, id = call.session, most_in_call_bytes = call.most_in_call_bytes, holder,
          gets_ticket, answer = std::move(answer)](Result<Rendezvous::Joined> result) {
    SessionEntry* session = state_.ledger.find(id);
    if (result && session == nullptr) {
      result = error(ErrorCode::Aborted, Reason::RemoteDied, "session ", id, " has ended");
    }
    if (!result) {
      *holder = {};
      if (session != nullptr && gets_ticket) --session->tickets_promised;
      return answer(result.error());
    }
    // This rank's seat in an earlier epoch has no use any more; its holder need not give it back.
    std::erase_if(session->members, [&](const auto& held) {
      if (held.second.unique_id != holder->unique_id || held.second.rank != holder->rank)
        return false;
      state_.worker_of(*session).leave_communicator(id, held.first, [](const Status&) {});
      return true;
    });
    count();
    holder->epoch = result->epoch;
    HeldMember& held = session->members[result->member];
    held = std::move(*holder);
    v1::CreateCommunicatorReply reply;
    reply.set_segment_limit_bytes(result->segment_limit_bytes);
    reply.set_member(result->member.bits());
    reply.set_epoch(result->epoch);
    for (const std::string& device : result->rank_devices) reply.add_rank_devices(device);
    if (state_.worker_of(*session).on_gpus())
      return hand_over_mailbox(*session, result->member, std::move(reply), answer);
    if (gets_ticket) --session->tickets_promised;
    if (Status given = hand_over_in_call(*session, held, *result, most_in_call_bytes, reply);
        !given) {
      state_.worker_of(*session).leave_communicator(id, result->member, [](const Status&) {});
      session->members.erase(result->member);
      return answer(given.error());
    }
    answer(reply);
  };
}

Status CommunicatorJoins::hand_over_in_call(SessionEntry& session, HeldMember& member,
                                            const Rendezvous::Joined& joined,
                                            std::uint64_t most_in_call_bytes,
                                            v1::CreateCommunicatorReply& reply) {
  const auto ranks = static_cast<std::uint32_t>(joined.rank_devices.size());
  if (!joined.is_here) {
    reply.set_launch_table(
        make_launch_table_between_hosts({.ranks = ranks, .nodes = joined.nodes}, joined.policy)
            .encode());
    return {};
  }
  member.in_call = state_.in_call.of(
      member.unique_id, member.epoch,
      {.uid = session.peer.uid,
       .groups = session.memory_groups,
       .ranks = ranks,
       .bounds = in_call_bounds(state_.settings->host.in_call_bytes, state_.tuning->in_call, ranks,
                                most_in_call_bytes),
       .is_off = state_.settings->host.in_call_bytes == 0,
       .same_tables = joined.same_tables});
  InCallExchange& exchange = *member.in_call;
  reply.set_launch_table(exchange.launches().encode());
  if (!exchange.has_memory()) return {};
  Result<UniqueFd> memory = exchange.descriptor();
  if (!memory) return memory.error();
  std::vector<UniqueFd> descriptors;
  descriptors.push_back(std::move(memory).value());
  reply.set_fd_ticket(state_.ledger.add_ticket(session, std::move(descriptors)));
  reply.set_exchange_bytes(exchange.bytes());
  return {};
}

void CommunicatorJoins::drop(Result<MailboxDescriptors> mailbox) {
  if (!mailbox) return;
  for (UniqueFd& fd : mailbox->descriptors) state_.memory_closer.close(std::move(fd));
}

void CommunicatorJoins::hand_over_mailbox(SessionEntry& owner, MemberId member,
                                          v1::CreateCommunicatorReply reply,
                                          const Answer<v1::CreateCommunicatorReply>& answer) {
  const SessionId id = owner.id;
  const HeldMember& joined = owner.members.at(member);
  // Also of a rank that has left meanwhile: it is there until its token has gone.
  const auto note_memory = [this, uid = owner.peer.uid, gpu = joined.gpu,
                            memory = joined.memory](const Result<MailboxDescriptors>& mailbox) {
    if (!mailbox) return;
    *memory = state_.gpu_shares.note(uid, gpu, GpuResource::Bytes,
                                     mailbox->mailbox_bytes + mailbox->exchange_bytes);
  };
  state_.worker_of(owner).export_mailbox(
      id, member,
      state_.replies.on_loop<MailboxDescriptors>(
          "hand over the mailbox",
          [this, id, member, note_memory, reply = std::move(reply),
           answer](Result<MailboxDescriptors> mailbox) {
            note_memory(mailbox);
            SessionEntry* session = state_.ledger.find(id);
            if (session == nullptr) {
              drop(std::move(mailbox));
              return answer(
                  error(ErrorCode::Aborted, Reason::RemoteDied, "session ", id, " has ended"));
            }
            --session->tickets_promised;
            if (!mailbox) {
              // A seat without a mailbox serves nobody; the other ranks hear of it.
              state_.worker_of(*session).leave_communicator(id, member, [](const Status&) {});
              session->members.erase(member);
              return answer(mailbox.error());
            }
            if (const auto held = session->members.find(member);
                held != session->members.end() && mailbox->exchange_bytes == 0)
              held->second.in_stream.reset();
            v1::CreateCommunicatorReply filled = reply;
            filled.set_fd_ticket(
                state_.ledger.add_ticket(*session, std::move(mailbox->descriptors)));
            filled.set_mailbox_bytes(mailbox->mailbox_bytes);
            filled.set_exchange_bytes(mailbox->exchange_bytes);
            filled.set_launch_table(mailbox->launches.encode());
            filled.set_why_no_codecs(mailbox->why_no_codecs);
            filled.set_max_timeout_ms(state_.settings->op.max_timeout_ms);
            answer(filled);
          },
          [this, note_memory](Result<MailboxDescriptors> late) {
            note_memory(late);
            drop(std::move(late));
          }));
}

void CommunicatorJoins::cancel(std::uint64_t call) {
  groups_.cancel(call);
  looking_.erase(call);
  rendezvous_.cancel(call);
}

void CommunicatorJoins::revoked(const UniqueIdBytes& unique_id, std::uint64_t epoch,
                                const std::string& why) {
  rendezvous_.dissolve(unique_id, epoch, why);
  count();
}

void CommunicatorJoins::count() {
  state_.metrics.communicators.set(static_cast<std::int64_t>(rendezvous_.ready()));
}

void CommunicatorJoins::session_gone(SessionId session, pid_t pid, Reason reason) {
  rendezvous_.session_gone(session, pid, reason);
  count();
}

void CommunicatorJoins::refuse_all(const Error& why) {
  rendezvous_.fail_all(why);
  count();
}

}  // namespace arcomm
