// NodeControl's calls about memory and plans.
#include <fcntl.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "daemon/control/node_control.h"
#include "daemon/control/shared_memory.h"
#include "daemon/telemetry/log.h"

namespace arcomm {

// A buffer on its way in: what it has been charged, until its session holds it.
struct NodeControl::NewBuffer {
  SessionId session;
  BufferSeed seed;
  HeldBuffer held;
  bool give_ticket = false;
  Answer<v1::BufferReply> answer;

  // What it was charged is free again before the client hears of the failure.
  void fail(const Error& why) {
    held = {};
    answer(why);
  }
};

void NodeControl::allocate_buffer(const Caller& caller, const v1::AllocateBufferRequest& request,
                                  Answer<v1::BufferReply> answer) {
  if (Status stopping = refuse_when_stopping(); !stopping) return answer(stopping.error());
  const Result<SessionEntry*> session = authorize(caller, request.session());
  if (!session) return answer(session.error());
  const Result<std::uint64_t> length = round_to_pages(request.bytes());
  if (!length) return answer(length.error());
  if ((*session)->tickets.size() + (*session)->tickets_promised >= kMaxTickets) {
    return answer(error(ErrorCode::ResourceExhausted, Reason::Quota, "session ", (*session)->id,
                        " has ", kMaxTickets,
                        " buffers whose descriptors it did not fetch: fetch them first"));
  }
  auto buffer = std::make_shared<NewBuffer>();
  if (Status charged = charge(*buffer, caller.peer.uid, *length); !charged)
    return answer(charged.error());
  buffer->session = (*session)->id;
  buffer->seed.length_bytes = *length;
  buffer->give_ticket = true;
  buffer->answer = std::move(answer);
  ++(*session)->tickets_promised;
  parts_.memory_thread.post([this, buffer, bytes = *length] {
    auto made = std::make_shared<Result<SealedMemory>>(make_sealed_memory("arcomm-buffer", bytes));
    parts_.loop.post([this, buffer, made] {
      if (SessionEntry* owner = ledger_.find(buffer->session); owner != nullptr)
        --owner->tickets_promised;
      if (!*made) return buffer->fail(made->error());
      add_buffer(buffer, memory_closer_.hold(std::move(made->value().fd)));
    });
  });
}

void NodeControl::register_buffer(const Caller& caller, const v1::RegisterBufferRequest& request,
                                  Answer<v1::BufferReply> answer) {
  if (Status stopping = refuse_when_stopping(); !stopping) return answer(stopping.error());
  const Result<SessionEntry*> session = authorize(caller, request.session());
  if (!session) return answer(session.error());
  Result<UniqueFd> offered = ledger_.take_offer(**session, request.offered_fd());
  if (!offered) return answer(offered.error());
  // Whoever offered it may have closed its own.
  std::shared_ptr<UniqueFd> memory = memory_closer_.hold(std::move(offered).value());
  const Status checked =
      check_offered_memory(memory->get(), request.offset_bytes(), request.length_bytes());
  if (!checked) return answer(checked.error());
  auto buffer = std::make_shared<NewBuffer>();
  if (Status charged = charge(*buffer, caller.peer.uid, request.length_bytes()); !charged) {
    return answer(charged.error());
  }
  buffer->session = (*session)->id;
  buffer->seed.offset_bytes = request.offset_bytes();
  buffer->seed.length_bytes = request.length_bytes();
  buffer->answer = std::move(answer);
  // A memfd may be larger than what is in it: the rest must be there to be had.
  parts_.memory_thread.post([this, buffer, memory] {
    const Status had = check_missing_pages(memory->get(), buffer->seed.length_bytes);
    parts_.loop.post([this, buffer, memory, had] {
      if (!had) return buffer->fail(had.error());
      add_buffer(buffer, memory);
    });
  });
}

Status NodeControl::charge(NewBuffer& buffer, uid_t uid, std::uint64_t length_bytes) {
  Result<ChargePtr> count = quotas_.charge(uid, QuotaKind::Buffers);
  if (!count) return count.error();
  Result<ChargePtr> bytes = quotas_.charge(uid, QuotaKind::RegisteredBytes, length_bytes);
  if (!bytes) return bytes.error();
  buffer.held = HeldBuffer{.length_bytes = length_bytes,
                           .count = std::move(count).value(),
                           .bytes = std::move(bytes).value()};
  return {};
}

void NodeControl::add_buffer(const std::shared_ptr<NewBuffer>& buffer,
                             const std::shared_ptr<UniqueFd>& memory) {
  SessionEntry* session = ledger_.find(buffer->session);
  if (session == nullptr) {
    return buffer->fail(
        error(ErrorCode::Aborted, Reason::RemoteDied, "session ", buffer->session, " has ended"));
  }
  std::shared_ptr<UniqueFd> for_client;
  if (buffer->give_ticket) {
    for_client = memory_closer_.hold(UniqueFd(::fcntl(memory->get(), F_DUPFD_CLOEXEC, 0)));
    if (!*for_client) {
      return buffer->fail(error(ErrorCode::ResourceExhausted, Reason::OutOfMemory,
                                "no descriptor is left: ", std::strerror(errno),
                                "; raise LimitNOFILE= of the service"));
    }
  }
  buffer->seed.memory = std::move(*memory);
  worker_of(*session).add_buffer(
      buffer->session, std::move(buffer->seed),
      replies_.on_loop<BufferId>(
          "map the buffer",
          [this, buffer, for_client](Result<BufferId> added) {
            SessionEntry* owner = ledger_.find(buffer->session);
            if (!added) return buffer->fail(added.error());
            if (owner == nullptr) {
              return buffer->fail(error(ErrorCode::Aborted, Reason::RemoteDied, "session ",
                                        buffer->session, " has ended"));
            }
            v1::BufferReply reply;
            reply.set_buffer(added->bits());
            reply.set_length_bytes(buffer->held.length_bytes);
            if (buffer->give_ticket) {
              std::vector<UniqueFd> fds;
              fds.push_back(std::move(*for_client));
              buffer->held.fd_ticket = ledger_.add_ticket(*owner, std::move(fds));
              reply.set_fd_ticket(buffer->held.fd_ticket);
            }
            owner->buffers.emplace(*added, std::move(buffer->held));
            buffer->answer(reply);
          },
          [worker = &worker_of(*session), id = buffer->session](Result<BufferId> late) {
            if (late) worker->remove_buffer(id, *late, [](const Status&) {});
          }));
}

void NodeControl::release_buffer(const Caller& caller, const v1::ReleaseBufferRequest& request,
                                 Answer<v1::Empty> answer) {
  const Result<SessionEntry*> session = authorize(caller, request.session());
  if (!session) return answer(session.error());
  const SessionId id = (*session)->id;
  const BufferId buffer = BufferId::from_bits(request.buffer());
  if (!(*session)->buffers.contains(buffer)) {
    return answer(error(ErrorCode::NotFound, Reason::UnknownHandle, "buffer ", buffer,
                        " is not one of session ", id));
  }
  worker_of(**session).remove_buffer(
      id, buffer,
      replies_.on_loop<void>(
          "release the buffer",
          [this, id, buffer, answer = std::move(answer)](const Status& status) {
            if (!status) return answer(status.error());
            forget_buffer(id, buffer);
            answer(v1::Empty{});
          },
          [this, id, buffer](const Status& late) {
            if (late) forget_buffer(id, buffer);
          }));
}

// Its memory goes with its quota, the descriptor too that nobody has fetched.
void NodeControl::forget_buffer(SessionId id, BufferId buffer) {
  SessionEntry* owner = ledger_.find(id);
  if (owner == nullptr) return;
  const auto node = owner->buffers.extract(buffer);
  if (!node) return;
  Result<std::vector<UniqueFd>> unfetched = ledger_.take_ticket(*owner, node.mapped().fd_ticket);
  for (std::size_t i = 0; unfetched && i < unfetched->size(); ++i)
    memory_closer_.close(std::move((*unfetched)[i]));
}

void NodeControl::create_plan(const Caller& caller, const v1::CreatePlanRequest& request,
                              Answer<v1::CreatePlanReply> answer) {
  if (Status stopping = refuse_when_stopping(); !stopping) return answer(stopping.error());
  const Result<SessionEntry*> session = authorize(caller, request.session());
  if (!session) return answer(session.error());
  if (request.dtype() >= kDTypes || request.op() >= kReduceOps || request.codec() >= kCodecs) {
    return answer(error(ErrorCode::InvalidArgument, Reason::BadValue, "dtype ", request.dtype(),
                        ", op ", request.op(), " or codec ", request.codec(),
                        " is none this version knows"));
  }
  Result<ChargePtr> charged = quotas_.charge(caller.peer.uid, QuotaKind::Plans);
  if (!charged) return answer(charged.error());
  const std::uint64_t timeout_ms =
      std::min(request.timeout_ms(), parts_.settings->op.max_timeout_ms);
  const PlanSeed seed{.member = MemberId::from_bits(request.member()),
                      .send_buffer = BufferId::from_bits(request.send_buffer()),
                      .recv_buffer = BufferId::from_bits(request.recv_buffer()),
                      .send_offset_bytes = request.send_offset_bytes(),
                      .recv_offset_bytes = request.recv_offset_bytes(),
                      .count = request.count(),
                      .dtype = static_cast<DType>(request.dtype()),
                      .op = static_cast<ReduceOp>(request.op()),
                      .codec = static_cast<Codec>(request.codec()),
                      .timeout_ns = timeout_ms * 1'000'000};
  const SessionId id = (*session)->id;
  worker_of(**session).add_plan(
      id, seed,
      replies_.on_loop<PlanId>(
          "register the plan",
          [this, id, answer = std::move(answer),
           holder = std::make_shared<ChargePtr>(std::move(charged).value())](Result<PlanId> plan) {
            SessionEntry* owner = ledger_.find(id);
            if (!plan) {
              holder->reset();
              return answer(plan.error());
            }
            if (owner != nullptr) owner->plans.emplace(*plan, std::move(*holder));
            v1::CreatePlanReply reply;
            reply.set_plan(plan->bits());
            answer(reply);
          },
          [worker = &worker_of(**session), id](Result<PlanId> late) {
            if (late) worker->remove_plan(id, *late, [](const Status&) {});
          }));
}

void NodeControl::destroy_plan(const Caller& caller, const v1::DestroyPlanRequest& request,
                               Answer<v1::Empty> answer) {
  const Result<SessionEntry*> session = authorize(caller, request.session());
  if (!session) return answer(session.error());
  const SessionId id = (*session)->id;
  const PlanId plan = PlanId::from_bits(request.plan());
  if (!(*session)->plans.contains(plan)) {
    return answer(error(ErrorCode::NotFound, Reason::UnknownHandle, "plan ", plan,
                        " is not one of session ", id));
  }
  worker_of(**session).remove_plan(
      id, plan,
      replies_.on_loop<void>(
          "remove the plan",
          [this, id, plan, answer = std::move(answer)](const Status& status) {
            if (!status) return answer(status.error());
            if (SessionEntry* owner = ledger_.find(id); owner != nullptr) owner->plans.erase(plan);
            answer(v1::Empty{});
          },
          [this, id, plan](const Status& late) {
            SessionEntry* owner = ledger_.find(id);
            if (late && owner != nullptr) owner->plans.erase(plan);
          }));
}

}  // namespace arcomm
