#include "daemon/exec/gpu/gpu_calls.h"

#include "daemon/session/session.h"

namespace arcomm {
namespace {

CudaAllReduce call_of(const GpuGroup& group, const GpuMember& own, const GpuRequest& request,
                      const BufferRegistry& buffers) {
  const int ordinal = own.engine->ordinal();
  RankCompletion& words = own.words();
  const std::uint32_t number = request.parts[static_cast<std::size_t>(own.rank)].number;
  static_assert(kCollectives == 1, "called as an AllReduce, whatever the signature says");
  CudaAllReduce call;
  call.done = &own.device_mailbox()->paths[static_cast<int>(LaunchPath::Launched)].done;
  call.done_word = to_word(Done{.number = number});
  call.host_done = &words.done;
  call.host_outcome = &words.outcome;
  call.count = request.signature.send_count;
  call.timeout_ns = request.timeout_ns;
  call.rank = static_cast<std::uint32_t>(own.rank);
  call.ranks = static_cast<std::uint32_t>(group.members.size());
  call.dtype = request.signature.dtype;
  call.codec = request.signature.codec;
  call.op = request.signature.op;
  call.most_blocks = group.most_blocks;
  for (std::uint32_t peer = 0; peer < call.ranks; ++peer) {
    call.scratch[peer] = group.members[peer].scratch.data();
    if (call.count == 0) continue;
    const GpuRequest::Part& part = request.parts[peer];
    const Buffer& send = *buffers.find(part.session, part.send_buffer);
    const Buffer& recv = *buffers.find(part.session, part.recv_buffer);
    call.send[peer] = send.base_on(ordinal) + (part.send - send.base());
    call.recv[peer] = recv.base_on(ordinal) + (part.recv - recv.base());
  }
  return call;
}

}  // namespace

GpuRequest request_of(const Arrival& arrival, std::size_t ranks, std::uint64_t now_ns) {
  GpuRequest request{.signature = arrival.signature,
                     .timeout_ns = arrival.deadline_ns > now_ns ? arrival.deadline_ns - now_ns : 1,
                     .parts = {}};
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    const Operation& operation = *arrival.operations[rank];
    request.parts[rank] = {operation.session->id(), operation.send_buffer,
                           operation.recv_buffer,   operation.send,
                           operation.recv,          static_cast<std::uint32_t>(operation.ticket)};
  }
  return request;
}

GpuCalls calls_of(const GpuGroup& group, const GpuRequest& request, const BufferRegistry& buffers) {
  GpuCalls calls;
  for (const GpuMember& member : group.members)
    calls[static_cast<std::size_t>(member.rank)] = call_of(group, member, request, buffers);
  return calls;
}

}  // namespace arcomm
