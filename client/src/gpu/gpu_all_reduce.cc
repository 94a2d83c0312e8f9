#include "client/src/gpu/gpu_all_reduce.h"

#include <utility>

#include "client/src/gpu/gpu_member.h"
#include "client/src/session/session.h"

namespace arcomm::client {

Result<GpuOperands> find_operands(const Member& member, const CollectiveCall& call,
                                  Deadline deadline) {
  if (call.is_empty()) return GpuOperands{};
  GpuBuffers& buffers = member.session->gpus()->buffers();
  Gpu& gpu = member.gpu->gpu();
  const Result<GpuBuffer> send = buffers.find(gpu, call.send, call.send_bytes(), deadline);
  if (!send) return send.error();
  const bool is_same = call.recv == call.send || !send->in_chunks;
  if (is_same && send->holds(call.recv, call.recv_bytes()))
    return GpuOperands{.send = *send, .recv = *send};
  const Result<GpuBuffer> recv = buffers.find(gpu, call.recv, call.recv_bytes(), deadline);
  if (!recv) return recv.error();
  return GpuOperands{.send = *send, .recv = *recv};
}

Status all_reduce_on_gpu(const std::shared_ptr<Member>& member, const CollectiveCall& call,
                         void* stream, std::chrono::milliseconds timeout) {
  Session& session = *member->session;
  session.check_now_and_then();
  if (session.lost()) return session.submission().loss();
  const Deadline deadline = Deadline::after(timeout);
  const auto timeout_ms = static_cast<std::uint64_t>(timeout.count());
  const Launch launch = member->gpu->launch_of(call);
  if (launch.path == LaunchPath::InStream) {
    return member->gpu->all_reduce_in_stream(call, launch.in_stream, timeout_ms, stream, deadline);
  }
  return with_second_attempt([&]() -> Status {
    if (session.lost()) return session.submission().loss();
    const Result<GpuOperands> operands = find_operands(*member, call, deadline);
    if (!operands) return operands.error();
    return member->gpu->all_reduce(call, operands->send, operands->recv, timeout_ms, stream,
                                   deadline);
  });
}

}  // namespace arcomm::client
