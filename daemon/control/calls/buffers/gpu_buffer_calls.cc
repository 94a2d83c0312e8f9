#include "daemon/control/calls/buffers/gpu_buffer_calls.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "daemon/control/calls/buffers/new_buffer.h"
#include "daemon/control/calls/charge_with_room.h"

namespace arcomm {
namespace {

constexpr std::uint64_t kMostGpuBytes = std::uint64_t{1} << 46;  // no GPU has more
constexpr std::size_t kIpcHandleBytes = 64;

Error has_ended(SessionId session) {
  return error(ErrorCode::Aborted, Reason::RemoteDied, "session ", session, " has ended");
}

Status check_gpu_range(const v1::RegisterBufferRequest& request) {
  if (request.length_bytes() == 0) {
    return error(ErrorCode::InvalidArgument, Reason::BadValue,
                 "a range of 0 bytes was asked for; ask for 1 or more");
  }
  const std::uint64_t whole = request.allocation_bytes();
  if (whole > kMostGpuBytes || request.offset_bytes() > whole ||
      request.length_bytes() > whole - request.offset_bytes()) {
    return error(ErrorCode::OutOfRange, Reason::OutOfBounds, "bytes ", request.offset_bytes(),
                 " + ", request.length_bytes(), " are not inside the allocation's ", whole,
                 " bytes");
  }
  return {};
}

// One piece of a buffer, until the worker has it. The client that offered the descriptor may have
// closed its own.
struct HeldChunk {
  std::shared_ptr<UniqueFd> memory;
  MemoryChunk chunk;
};

Status check_chunks(const v1::RegisterBufferRequest& request) {
  if (!request.ipc_handle().empty() || request.offered_fd() != 0) {
    return error(ErrorCode::InvalidArgument, Reason::BadValue,
                 "GPU memory in pieces is named by these alone; this call has an IPC handle or a "
                 "descriptor for the whole, too");
  }
  std::uint64_t sum = 0;
  for (const v1::MemoryChunk& chunk : request.chunks()) {
    if (chunk.bytes() == 0 || chunk.bytes() > kMostGpuBytes - sum) {
      return error(ErrorCode::OutOfRange, Reason::BadValue, "a piece of ", chunk.bytes(),
                   " bytes of GPU memory behind ", sum, ": not a size that a GPU has");
    }
    sum += chunk.bytes();
    const bool is_named_once = (chunk.offered_fd() != 0) == chunk.fabric_handle().empty();
    if (is_named_once &&
        (chunk.offered_fd() != 0 || chunk.fabric_handle().size() == kFabricHandleBytes))
      continue;
    return error(
        ErrorCode::InvalidArgument, Reason::BadValue,
        "a piece of GPU memory is named by an offered descriptor or by a fabric handle of ",
        kFabricHandleBytes, " bytes; this one has ", chunk.offered_fd() != 0 ? "a" : "no",
        " descriptor and a handle of ", chunk.fabric_handle().size(), " bytes");
  }
  if (sum == request.allocation_bytes()) return {};
  return error(ErrorCode::InvalidArgument, Reason::OutOfBounds, "the pieces have ", sum,
               " bytes and allocation_bytes says ", request.allocation_bytes());
}

// All offers are taken, whatever is wrong: a refused one must not stay behind.
Result<std::vector<HeldChunk>> take_chunks(SessionLedger& ledger, FdCloser& closer,
                                           SessionEntry& session,
                                           const v1::RegisterBufferRequest& request) {
  std::vector<HeldChunk> held;
  Status taken;
  for (const v1::MemoryChunk& wanted : request.chunks()) {
    HeldChunk one;
    one.chunk.bytes = wanted.bytes();
    if (wanted.offered_fd() != 0) {
      Result<UniqueFd> offered = ledger.take_offer(session, wanted.offered_fd());
      if (offered) {
        one.memory = closer.hold(std::move(offered).value());
      } else if (taken) {
        taken = offered.error();
      }
    } else if (wanted.fabric_handle().size() == kFabricHandleBytes) {
      std::memcpy(one.chunk.fabric.data(), wanted.fabric_handle().data(), kFabricHandleBytes);
    }
    held.push_back(std::move(one));
  }
  if (held.size() > kMostChunks) {
    return error(ErrorCode::OutOfRange, Reason::BadValue, "GPU memory of ", held.size(),
                 " pieces cannot be registered at once: ", kMostChunks,
                 " is the most (AttachReply.max_chunks)");
  }
  if (!taken) return taken.error();
  if (!held.empty()) ARC_RETURN_IF_ERROR(check_chunks(request));
  return held;
}

}  // namespace

void GpuBufferCalls::allocate_buffer(SessionEntry& session,
                                     const v1::AllocateBufferRequest& request,
                                     std::uint64_t waits_until_ns, Answer<v1::BufferReply> answer) {
  const Result<std::string> gpu = state_.devices.gpu_of(session, request.device());
  if (!gpu) return answer(gpu.error());
  const std::uint64_t asked = request.bytes();
  if (asked == 0 || asked > kMostGpuBytes) {
    return answer(error(asked == 0 ? ErrorCode::InvalidArgument : ErrorCode::OutOfRange,
                        Reason::BadValue, asked,
                        " bytes of GPU memory cannot be allocated: ask "
                        "for 1 or more, and no more than a GPU has"));
  }
  auto buffer = std::make_shared<NewBuffer>();
  buffer->session = session.id;
  buffer->answer = std::move(answer);
  const auto charge = [this, buffer, asked, uid = session.peer.uid, gpu = *gpu]() -> Status {
    ARC_RETURN_IF_ERROR(buffer->charge(state_.quotas, uid, asked, NewBuffer::Memory::Gpu));
    Result<GpuShares::SharePtr> of_gpu =
        state_.gpu_shares.take(uid, gpu, GpuResource::Bytes, asked);
    if (!of_gpu) {
      buffer->held = {};
      return std::move(of_gpu).error();
    }
    buffer->held.charges->of_gpu = std::move(of_gpu).value();
    return {};
  };
  std::vector<Demand> demands = demands_of(state_.quotas, asked, NewBuffer::Memory::Gpu);
  const GpuShares::OfGpu* of_gpu = state_.gpu_shares.find(*gpu);
  if (of_gpu != nullptr)
    demands.push_back({(*of_gpu)[static_cast<std::size_t>(GpuResource::Bytes)], asked});
  charge_with_room(state_,
                   {.uid = session.peer.uid,
                    .session = session.id,
                    .waits_until_ns = waits_until_ns,
                    .demands = std::move(demands),
                    .charge = charge},
                   [this, buffer, asked, waits_until_ns, gpu = *gpu,
                    uid = session.peer.uid](const Status& charged) {
                     if (!charged) return buffer->fail(charged.error());
                     allocate(buffer,
                              {.device = gpu,
                               .bytes = asked,
                               .deadline_ns = waits_until_ns,
                               .token = state_.at_workers.token_of(uid, buffer->held.charges)});
                   });
}

void GpuBufferCalls::allocate(const std::shared_ptr<NewBuffer>& buffer, AllocationSpec wanted) {
  SessionEntry* session = state_.ledger.find(buffer->session);
  if (const Status promised = state_.ledger.promise_ticket(*session); !promised)
    return buffer->fail(promised.error());
  buffer->give_ticket = true;
  DeviceWorker* worker = &state_.worker_of(*session);
  const std::uint64_t asked = wanted.bytes;
  const std::uint64_t waits_until_ns = wanted.deadline_ns;
  const std::string gpu = wanted.device;
  worker->allocate_buffer(
      buffer->session, std::move(wanted),
      state_.replies.on_loop<AllocatedBuffer>(
          "allocate the buffer",
          [this, buffer, worker, asked, waits_until_ns, gpu](Result<AllocatedBuffer> result) {
            const SessionEntry* owner = state_.ledger.find(buffer->session);
            if (!result || owner == nullptr) buffer->drop_promise(state_.ledger);
            if (!result) return buffer->fail(result.error());
            const std::shared_ptr<UniqueFd> memory =
                state_.memory_closer.hold(std::move(result->memory));
            if (owner == nullptr) return buffer->fail(has_ended(buffer->session));
            const std::uint64_t bytes = result->length_bytes;
            const std::uint64_t more = bytes - std::min(asked, bytes);
            const auto charge = [this, buffer, uid = owner->peer.uid, more]() -> Status {
              Result<ChargePtr> rest = state_.quotas.charge(uid, QuotaKind::RegisteredBytes, more);
              if (!rest) return std::move(rest).error();
              buffer->held.charges->rest = std::move(rest).value();
              return {};
            };
            charge_with_room(state_,
                             {.uid = owner->peer.uid,
                              .session = owner->id,
                              .waits_until_ns = waits_until_ns,
                              .demands = {{state_.quotas.shares(QuotaKind::RegisteredBytes), more}},
                              .charge = charge},
                             [this, buffer, worker, gpu, memory, made = result->buffer,
                              bytes](const Status& charged) {
                               buffer->drop_promise(state_.ledger);
                               if (charged) return give(buffer, gpu, made, bytes, memory);
                               worker->remove_buffer(buffer->session, made, [](const Status&) {});
                               buffer->fail(charged.error());
                             });
          },
          [this, worker, buffer](Result<AllocatedBuffer> late) {
            if (!late) {
              buffer->held = {};
              return;
            }
            state_.memory_closer.close(std::move(late->memory));
            remove_late(state_, *worker, buffer, late->buffer);
          }));
}

void GpuBufferCalls::give(const std::shared_ptr<NewBuffer>& buffer, const std::string& gpu,
                          BufferId made, std::uint64_t length_bytes,
                          const std::shared_ptr<UniqueFd>& memory) {
  SessionEntry& owner = *state_.ledger.find(buffer->session);
  BufferCharges& charges = *buffer->held.charges;
  charges.of_gpu.reset();
  charges.of_gpu = state_.gpu_shares.note(owner.peer.uid, gpu, GpuResource::Bytes, length_bytes);
  buffer->held.length_bytes = length_bytes;
  std::vector<UniqueFd> fds;
  fds.push_back(std::move(*memory));
  buffer->held.fd_ticket = state_.ledger.add_ticket(owner, std::move(fds));
  v1::BufferReply reply;
  reply.set_buffer(made.bits());
  reply.set_length_bytes(length_bytes);
  reply.set_fd_ticket(buffer->held.fd_ticket);
  owner.buffers.emplace(made, std::move(buffer->held));
  buffer->answer(reply);
}

void GpuBufferCalls::register_buffer(SessionEntry& session,
                                     const v1::RegisterBufferRequest& request,
                                     std::uint64_t waits_until_ns, Answer<v1::BufferReply> answer) {
  // Taken in any case: a refused offer must not stay behind.
  auto chunks = std::make_shared<Result<std::vector<HeldChunk>>>(
      take_chunks(state_.ledger, state_.memory_closer, session, request));
  std::shared_ptr<UniqueFd> memory = state_.memory_closer.hold(UniqueFd());
  const bool is_whole = request.chunks().empty() && request.ipc_handle().empty();
  if (request.offered_fd() != 0 || is_whole) {
    Result<UniqueFd> offered = state_.ledger.take_offer(session, request.offered_fd());
    if (!offered) return answer(offered.error());
    memory = state_.memory_closer.hold(std::move(offered).value());
  }
  if (!*chunks) return answer(chunks->error());
  const Result<std::string> gpu = state_.devices.gpu_of(session, request.device());
  if (!gpu) return answer(gpu.error());
  if (!request.ipc_handle().empty() &&
      (request.ipc_handle().size() != kIpcHandleBytes || *memory)) {
    return answer(error(
        ErrorCode::InvalidArgument, Reason::BadValue, "GPU memory is named by an IPC handle of ",
        kIpcHandleBytes, " bytes or by an offered descriptor; this call has a handle of ",
        request.ipc_handle().size(), " bytes and ", *memory ? "a" : "no", " descriptor"));
  }
  if (const Status checked = check_gpu_range(request); !checked) return answer(checked.error());
  auto buffer = std::make_shared<NewBuffer>();
  buffer->session = session.id;
  buffer->spec.handle = {.kind = MemoryKind::PosixFd,
                         .offset_bytes = request.offset_bytes(),
                         .length_bytes = request.length_bytes(),
                         .allocation_bytes = request.allocation_bytes()};
  if (!request.ipc_handle().empty()) {
    buffer->spec.handle.kind = MemoryKind::CudaIpc;
    std::memcpy(buffer->spec.handle.opaque.data(), request.ipc_handle().data(), kIpcHandleBytes);
  }
  buffer->spec.device = *gpu;
  buffer->spec.deadline_ns = waits_until_ns;
  buffer->answer = std::move(answer);
  const auto charge = [this, buffer, uid = session.peer.uid, bytes = request.length_bytes()] {
    return buffer->charge(state_.quotas, uid, bytes, NewBuffer::Memory::Gpu);
  };
  charge_with_room(
      state_,
      {.uid = session.peer.uid,
       .session = session.id,
       .waits_until_ns = waits_until_ns,
       .demands = demands_of(state_.quotas, request.length_bytes(), NewBuffer::Memory::Gpu),
       .charge = charge},
      [this, buffer, memory, chunks, uid = session.peer.uid](const Status& charged) {
        if (!charged) return buffer->fail(charged.error());
        // Not before: of what is refused the last close may be ours, and take long.
        for (HeldChunk& held : **chunks) {
          if (held.memory != nullptr) held.chunk.memory = std::move(*held.memory);
          buffer->spec.chunks.push_back(std::move(held.chunk));
        }
        buffer->spec.token = state_.at_workers.token_of(uid, buffer->held.charges);
        add_to_worker(state_, buffer, memory);
      });
}

}  // namespace arcomm
