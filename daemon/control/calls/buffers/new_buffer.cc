#include "daemon/control/calls/buffers/new_buffer.h"

#include <cerrno>
#include <cstring>
#include <utility>

#include "daemon/control/descriptors/shared_memory.h"

namespace arcomm {

Status NewBuffer::charge(QuotaBook& quotas, uid_t uid, std::uint64_t length_bytes, Memory memory) {
  Result<ChargePtr> count = quotas.charge(uid, QuotaKind::Buffers);
  if (!count) return count.error();
  Result<ChargePtr> bytes = quotas.charge(uid, QuotaKind::RegisteredBytes, length_bytes);
  if (!bytes) return bytes.error();
  Result<ChargePtr> mapping = quotas.charge(uid, QuotaKind::Mappings);
  if (!mapping) return mapping.error();
  Result<ChargePtr> reserved =
      quotas.charge(uid, QuotaKind::HostBytes, memory == Memory::Host ? length_bytes : 0);
  if (!reserved) return reserved.error();
  held.length_bytes = length_bytes;
  held.charges =
      std::make_shared<BufferCharges>(BufferCharges{.count = std::move(count).value(),
                                                    .bytes = std::move(bytes).value(),
                                                    .mapping = std::move(mapping).value(),
                                                    .reserved = std::move(reserved).value(),
                                                    .unfilled = {},
                                                    .of_group = {},
                                                    .rest = {},
                                                    .of_gpu = {}});
  return {};
}

std::vector<Demand> demands_of(const QuotaBook& quotas, std::uint64_t length_bytes,
                               NewBuffer::Memory memory) {
  std::vector<Demand> demands{{quotas.shares(QuotaKind::Buffers), 1},
                              {quotas.shares(QuotaKind::RegisteredBytes), length_bytes},
                              {quotas.shares(QuotaKind::Mappings), 1}};
  if (memory == NewBuffer::Memory::Host)
    demands.push_back({quotas.shares(QuotaKind::HostBytes), length_bytes, false});
  return demands;
}

void NewBuffer::drop_promise(SessionLedger& ledger) const {
  SessionEntry* owner = ledger.find(session);
  if (give_ticket && owner != nullptr) --owner->tickets_promised;
}

void add_to_worker(ControlState& state, const std::shared_ptr<NewBuffer>& buffer,
                   const std::shared_ptr<UniqueFd>& memory) {
  SessionEntry* session = state.ledger.find(buffer->session);
  if (session == nullptr) {
    return buffer->fail(
        error(ErrorCode::Aborted, Reason::RemoteDied, "session ", buffer->session, " has ended"));
  }
  std::shared_ptr<UniqueFd> for_client;
  if (buffer->give_ticket) {
    for_client = state.memory_closer.hold(duplicate(memory->get()));
    if (!*for_client) {
      buffer->drop_promise(state.ledger);
      return buffer->fail(error(ErrorCode::ResourceExhausted, Reason::OutOfMemory,
                                "no descriptor is left: ", std::strerror(errno),
                                "; raise LimitNOFILE= of the service"));
    }
  }
  buffer->spec.memory = std::move(*memory);
  state.worker_of(*session).add_buffer(
      buffer->session, std::move(buffer->spec),
      state.replies.on_loop<BufferId>(
          "map the buffer",
          [&state, buffer, for_client](Result<BufferId> added) {
            SessionEntry* owner = state.ledger.find(buffer->session);
            buffer->drop_promise(state.ledger);
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
              buffer->held.fd_ticket = state.ledger.add_ticket(*owner, std::move(fds));
              reply.set_fd_ticket(buffer->held.fd_ticket);
            }
            owner->buffers.emplace(*added, std::move(buffer->held));
            buffer->answer(reply);
          },
          [&state, worker = &state.worker_of(*session), buffer](Result<BufferId> late) {
            if (!late) buffer->held = {};
            if (late) remove_late(state, *worker, buffer, *late);
          }));
}

void remove_late(ControlState& state, DeviceWorker& worker,
                 const std::shared_ptr<NewBuffer>& buffer, BufferId made) {
  worker.remove_buffer(buffer->session, made,
                       state.replies.on_loop<void>(
                           "remove the buffer",
                           [buffer](const Status& gone) {
                             if (gone || gone.error().code != ErrorCode::DeadlineExceeded)
                               buffer->held = {};
                           },
                           [buffer](const Status&) { buffer->held = {}; }));
}

}  // namespace arcomm
