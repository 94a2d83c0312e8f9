#include "daemon/control/calls/buffers/buffer_calls.h"

#include <utility>

#include "daemon/control/descriptors/shared_memory.h"

namespace arcomm {
namespace {

Error caller_left() {
  return error(ErrorCode::Cancelled, Reason::None,
               "the caller went away before the memory was there");
}

}  // namespace

BufferCalls::BufferCalls(ControlState& state, FairPrefault& fair_prefault, SessionGroups& groups)
    : state_(state), on_gpus_(state), fair_prefault_(fair_prefault), groups_(groups) {}

void BufferCalls::allocate_buffer(const Caller& caller, const v1::AllocateBufferRequest& request,
                                  Answer<v1::BufferReply> answer) {
  if (Status stopping = state_.refuse_when_stopping(); !stopping) return answer(stopping.error());
  const Result<SessionEntry*> session = state_.authorize(caller, request.session());
  if (!session) return answer(session.error());
  answer = kept_if_fetched(caller, (*session)->id, std::move(answer));
  if (state_.worker_of(**session).on_gpus()) {
    return on_gpus_.allocate_buffer(**session, request, caller.waits_until_ns, std::move(answer));
  }
  const Result<std::uint64_t> length = round_to_pages(request.bytes());
  if (!length) return answer(length.error());
  auto buffer = std::make_shared<NewBuffer>();
  buffer->session = (*session)->id;
  buffer->spec.handle.length_bytes = *length;
  buffer->answer = std::move(answer);
  charge(caller, buffer, [this, buffer, call = caller.call] {
    const Status promised = state_.ledger.promise_ticket(*state_.ledger.find(buffer->session));
    if (!promised) return buffer->fail(promised.error());
    buffer->give_ticket = true;
    charge_groups(buffer, call, [this, buffer, call] {
      fair_prefault_.allocate({buffer->session, call}, buffer->held.length_bytes,
                              [this, buffer](Result<UniqueFd> made) {
                                if (!made) {
                                  buffer->drop_promise(state_.ledger);
                                  return buffer->fail(made.error());
                                }
                                add_to_worker(state_, buffer,
                                              state_.memory_closer.hold(std::move(made).value()));
                              });
    });
  });
}

void BufferCalls::charge(const Caller& caller, const std::shared_ptr<NewBuffer>& buffer,
                         std::function<void()> then) {
  constexpr auto kHost = NewBuffer::Memory::Host;
  const std::uint64_t bytes = buffer->spec.handle.length_bytes;
  const uid_t uid = caller.peer.uid;
  if (caller.call != 0) waiting_.insert(caller.call);
  charge_with_room(
      state_,
      {.uid = uid,
       .session = buffer->session,
       .waits_until_ns = caller.waits_until_ns,
       .demands = demands_of(state_.quotas, bytes, kHost),
       .charge = [this, buffer, uid,
                  bytes] { return buffer->charge(state_.quotas, uid, bytes, kHost); }},
      [this, buffer, call = caller.call, then = std::move(then)](const Status& charged) {
        if (call != 0 && waiting_.erase(call) == 0) return buffer->fail(caller_left());
        charged ? then() : buffer->fail(charged.error());
      });
}

Answer<v1::BufferReply> BufferCalls::kept_if_fetched(const Caller& caller, SessionId session,
                                                     Answer<v1::BufferReply> answer) {
  if (caller.waits_until_ns == 0) return answer;
  return [this, session, until = std::chrono::nanoseconds(caller.waits_until_ns),
          answer = std::move(answer)](const Result<v1::BufferReply>& made) {
    const BufferId buffer = made ? BufferId::from_bits(made->buffer()) : BufferId{};
    HeldBuffer* fresh = made ? find_unfetched(state_.ledger.find(session), buffer) : nullptr;
    if (fresh != nullptr) {
      fresh->fetched_by = state_.loop.at(EventLoop::Clock::time_point(until + kTimeToFetch),
                                         [this, session, buffer] {
                                           SessionEntry* owner = state_.ledger.find(session);
                                           if (find_unfetched(owner, buffer) != nullptr)
                                             take_back(*owner, buffer);
                                         });
    }
    answer(made);
  };
}

HeldBuffer* BufferCalls::find_unfetched(SessionEntry* session, BufferId buffer) {
  if (session == nullptr) return nullptr;
  const auto found = session->buffers.find(buffer);
  if (found == session->buffers.end() || !session->tickets.contains(found->second.fd_ticket))
    return nullptr;
  return &found->second;
}

void BufferCalls::charge_groups(const std::shared_ptr<NewBuffer>& buffer, std::uint64_t call,
                                std::function<void()> then) {
  groups_.look(buffer->session, call,
               [this, buffer,
                then = std::move(then)](const Result<const std::vector<MemoryGroup>*>& groups) {
                 const auto give_up = [&](const Error& why) {
                   buffer->drop_promise(state_.ledger);
                   buffer->fail(why);
                 };
                 if (!groups) return give_up(groups.error());
                 Result<GroupChargePtr> of_group =
                     state_.client_groups.charge(**groups, buffer->held.length_bytes);
                 if (!of_group) return give_up(of_group.error());
                 buffer->held.charges->of_group = std::move(of_group).value();
                 then();
               });
}

void BufferCalls::cancel_allocation(std::uint64_t call) {
  waiting_.erase(call);
  fair_prefault_.drop_call(call, caller_left());
}

void BufferCalls::session_gone(SessionId session) {
  fair_prefault_.drop_session(
      session, error(ErrorCode::Aborted, Reason::RemoteDied, "session ", session, " has ended"));
}

void BufferCalls::register_buffer(const Caller& caller, const v1::RegisterBufferRequest& request,
                                  Answer<v1::BufferReply> answer) {
  if (Status stopping = state_.refuse_when_stopping(); !stopping) return answer(stopping.error());
  const Result<SessionEntry*> session = state_.authorize(caller, request.session());
  if (!session) return answer(session.error());
  if (state_.worker_of(**session).on_gpus()) {
    return on_gpus_.register_buffer(**session, request, caller.waits_until_ns, std::move(answer));
  }
  Result<UniqueFd> offered = state_.ledger.take_offer(**session, request.offered_fd());
  if (!offered) return answer(offered.error());
  // Whoever offered it may have closed its own.
  std::shared_ptr<UniqueFd> memory = state_.memory_closer.hold(std::move(offered).value());
  const Status checked =
      check_offered_memory(memory->get(), request.offset_bytes(), request.length_bytes());
  if (!checked) return answer(checked.error());
  auto buffer = std::make_shared<NewBuffer>();
  buffer->session = (*session)->id;
  buffer->spec.handle.offset_bytes = request.offset_bytes();
  buffer->spec.handle.length_bytes = request.length_bytes();
  buffer->answer = std::move(answer);
  charge(caller, buffer, [this, buffer, memory, uid = caller.peer.uid, call = caller.call] {
    charge_groups(buffer, call,
                  [this, buffer, memory, uid, call] { check_pages(buffer, memory, uid, call); });
  });
}

// A memfd may be larger than what is in it: the rest must be there to be had, and stays promised
// for as long as the buffer is registered.
void BufferCalls::check_pages(const std::shared_ptr<NewBuffer>& buffer,
                              const std::shared_ptr<UniqueFd>& memory, uid_t uid,
                              std::uint64_t call) {
  fair_prefault_.check({buffer->session, call}, memory, buffer->spec.handle.length_bytes,
                       [this, buffer, memory, uid](const Result<MissingPages>& missing) {
                         if (!missing) return buffer->fail(missing.error());
                         state_.quotas.note_available(missing->available_bytes);
                         Result<ChargePtr> unfilled =
                             state_.quotas.charge(uid, QuotaKind::UnfilledBytes, missing->bytes);
                         if (!unfilled) return buffer->fail(unfilled.error());
                         buffer->held.charges->unfilled = std::move(unfilled).value();
                         add_to_worker(state_, buffer, memory);
                       });
}

void BufferCalls::release_buffer(const Caller& caller, const v1::ReleaseBufferRequest& request,
                                 Answer<v1::Empty> answer) {
  const Result<SessionEntry*> session = state_.authorize(caller, request.session());
  if (!session) return answer(session.error());
  if (request.offered_fds_size() > static_cast<int>(kMaxOffers)) {
    return answer(error(ErrorCode::OutOfRange, Reason::BadValue, "no session can have offered ",
                        request.offered_fds_size(), " descriptors: ", kMaxOffers, " is the most"));
  }
  for (const std::uint64_t ticket : request.offered_fds()) {
    if (Result<UniqueFd> offered = state_.ledger.take_offer(**session, ticket))
      state_.memory_closer.close(std::move(offered).value());
  }
  if (!request.offered_fds().empty() && request.buffer() == 0) return answer(v1::Empty{});
  release(**session, BufferId::from_bits(request.buffer()), std::move(answer));
}

void BufferCalls::release(const SessionEntry& session, BufferId buffer, Answer<v1::Empty> answer) {
  const SessionId id = session.id;
  if (!session.buffers.contains(buffer)) {
    return answer(error(ErrorCode::NotFound, Reason::UnknownHandle, "buffer ", buffer,
                        " is not one of session ", id));
  }
  state_.worker_of(session).remove_buffer(
      id, buffer,
      state_.replies.on_loop<void>(
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

void BufferCalls::take_back(const Caller& caller, const v1::SessionRef& session,
                            const v1::BufferReply& unheard) {
  if (const Result<SessionEntry*> owner = state_.authorize(caller, session))
    take_back(**owner, BufferId::from_bits(unheard.buffer()));
}

void BufferCalls::take_back(const SessionEntry& session, BufferId unheard) {
  release(session, unheard, [](const Result<v1::Empty>&) {});
}

// Its memory goes with its quota, the descriptor too that nobody has fetched.
void BufferCalls::forget_buffer(SessionId id, BufferId buffer) {
  SessionEntry* owner = state_.ledger.find(id);
  if (owner == nullptr) return;
  const auto node = owner->buffers.extract(buffer);
  if (!node) return;
  state_.loop.cancel(node.mapped().fetched_by);
  Result<std::vector<UniqueFd>> unfetched =
      state_.ledger.take_ticket(*owner, node.mapped().fd_ticket);
  for (std::size_t i = 0; unfetched && i < unfetched->size(); ++i)
    state_.memory_closer.close(std::move((*unfetched)[i]));
}

}  // namespace arcomm
