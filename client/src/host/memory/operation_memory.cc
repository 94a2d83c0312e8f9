#include "client/src/host/memory/operation_memory.h"

#include <utility>

#include "client/src/host/member.h"
#include "client/src/session/session.h"

namespace arcomm::client {

Result<SharedRange> find_shared(const void* address, std::uint64_t bytes, Session& session,
                                Deadline deadline) {
  std::shared_ptr<Buffer> buffer = buffers().find(reinterpret_cast<std::uintptr_t>(address), bytes);
  if (!buffer || !buffer->is_shared()) return SharedRange{};
  Result<BufferId> id = buffer->id_in(session, deadline);
  if (!id) return std::move(id).error();
  buffer->begin_use();
  const std::uint64_t offset = buffer->offset_of(address);
  return SharedRange{std::move(buffer), *id, offset};
}

Status take_memory(Operation& operation, Deadline deadline) {
  const CollectiveCall& call = operation.call;
  if (call.is_empty()) return {};
  Session& session = *operation.member->session;
  Result<SharedRange> send = find_shared(call.send, call.send_bytes(), session, deadline);
  if (!send) return std::move(send).error();
  operation.send = std::move(*send);
  Result<SharedRange> recv = find_shared(call.recv, call.recv_bytes(), session, deadline);
  if (!recv) return std::move(recv).error();
  operation.recv = std::move(*recv);
  if (!operation.stages_send() && !operation.stages_recv()) return {};
  Result<StagingSlot*> first = session.staging().acquire(operation.segment_bytes(0), deadline);
  if (!first) return std::move(first).error();
  operation.staged[0].slot = *first;
  operation.num_staged = 1;
  if (operation.cut.segments == 1) return {};
  // The second slot lets copying overlap; without it the operation is slower, not wrong.
  if (Result<StagingSlot*> second =
          session.staging().acquire(operation.segment_bytes(0), deadline)) {
    operation.staged[1].slot = *second;
    operation.num_staged = 2;
  }
  return {};
}

void give_back_memory(Operation& operation, StagingPool& staging) {
  for (StagedSegment& staged : operation.staged) {
    if (staged.slot != nullptr) staging.release(std::exchange(staged.slot, nullptr));
  }
  if (operation.send.buffer) operation.send.buffer->end_use();
  if (operation.recv.buffer) operation.recv.buffer->end_use();
}

}  // namespace arcomm::client
