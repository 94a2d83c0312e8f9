// NodeControl's calls about memory.

#include <cerrno>
#include <cstring>
#include <utility>

#include "daemon/control/descriptors/shared_memory.h"
#include "daemon/control/new_buffer.h"
#include "daemon/control/node_control.h"
#include "daemon/telemetry/log/log.h"

namespace arcomm {

void NodeControl::allocate_buffer(const Caller& caller, const v1::AllocateBufferRequest& request,
                                  Answer<v1::BufferReply> answer) {
  if (Status stopping = refuse_when_stopping(); !stopping) return answer(stopping.error());
  const Result<SessionEntry*> session = authorize(caller, request.session());
  if (!session) return answer(session.error());
  if (worker_of(**session).on_gpus()) {
    return allocate_on_gpu(**session, request, std::move(answer));
  }
  const Result<std::uint64_t> length = round_to_pages(request.bytes());
  if (!length) return answer(length.error());
  auto buffer = std::make_shared<NewBuffer>();
  if (Status charged = charge(*buffer, caller.peer.uid, *length); !charged)
    return answer(charged.error());
  if (Status promised = promise_ticket(**session); !promised) {
    buffer.reset();
    return answer(promised.error());
  }
  buffer->session = (*session)->id;
  buffer->seed.length_bytes = *length;
  buffer->give_ticket = true;
  buffer->answer = std::move(answer);
  fair_prefault_.allocate(
      {buffer->session, caller.call}, *length, [this, buffer](Result<UniqueFd> made) {
        if (SessionEntry* owner = ledger_.find(buffer->session); owner != nullptr)
          --owner->tickets_promised;
        if (!made) return buffer->fail(made.error());
        add_buffer(buffer, memory_closer_.hold(std::move(made).value()));
      });
}

void NodeControl::cancel_allocation(std::uint64_t call) {
  fair_prefault_.drop_call(call, error(ErrorCode::Cancelled, Reason::None,
                                       "the caller went away before the memory was there"));
}

void NodeControl::register_buffer(const Caller& caller, const v1::RegisterBufferRequest& request,
                                  Answer<v1::BufferReply> answer) {
  if (Status stopping = refuse_when_stopping(); !stopping) return answer(stopping.error());
  const Result<SessionEntry*> session = authorize(caller, request.session());
  if (!session) return answer(session.error());
  if (worker_of(**session).on_gpus()) {
    return register_on_gpu(**session, request, std::move(answer));
  }
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
  fair_prefault_.check({buffer->session, caller.call}, memory, buffer->seed.length_bytes,
                       [this, buffer, memory](const Status& had) {
                         if (!had) return buffer->fail(had.error());
                         add_buffer(buffer, memory);
                       });
}

Status NodeControl::charge(NewBuffer& buffer, uid_t uid, std::uint64_t length_bytes) {
  Result<ChargePtr> count = quotas_.charge(uid, QuotaKind::Buffers);
  if (!count) return count.error();
  Result<ChargePtr> bytes = quotas_.charge(uid, QuotaKind::RegisteredBytes, length_bytes);
  if (!bytes) return bytes.error();
  buffer.held = HeldBuffer{.length_bytes = length_bytes,
                           .count = std::move(count).value(),
                           .bytes = std::move(bytes).value(),
                           .rest = {}};
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
    for_client = memory_closer_.hold(duplicate(memory->get()));
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
  if (request.offered_fds_size() > static_cast<int>(kMaxOffers)) {
    return answer(error(ErrorCode::OutOfRange, Reason::BadValue, "no session can have offered ",
                        request.offered_fds_size(), " descriptors: ", kMaxOffers, " is the most"));
  }
  for (const std::uint64_t ticket : request.offered_fds()) {
    if (Result<UniqueFd> offered = ledger_.take_offer(**session, ticket))
      memory_closer_.close(std::move(offered).value());
  }
  if (!request.offered_fds().empty() && request.buffer() == 0) return answer(v1::Empty{});
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

void NodeControl::take_back(const Caller& caller, const v1::SessionRef& session,
                            const v1::BufferReply& unheard) {
  v1::ReleaseBufferRequest release;
  *release.mutable_session() = session;
  release.set_buffer(unheard.buffer());
  release_buffer(caller, release, [](const Result<v1::Empty>&) {});
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

}  // namespace arcomm
