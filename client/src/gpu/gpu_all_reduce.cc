#include "client/src/gpu/gpu_all_reduce.h"

#include <string>
#include <utility>

#include "client/src/gpu/gpu_member.h"
#include "client/src/session/session.h"

namespace arcomm::client {
namespace {

// Memory that the daemon cannot be given still serves what needs no daemon.
Error not_for_the_daemon(Error why, const CollectiveCall& call) {
  if (why.reason != Reason::Unsupported) return why;
  why.message += ". An operation of " + std::to_string(call.send_bytes()) + " bytes of " +
                 std::string(text_of(call.dtype)) +
                 " is run by the daemon here; shorter ones that are in-stream take any memory of "
                 "the GPU (arctl comms says which)";
  return why;
}

}  // namespace

Result<GpuOperands> find_operands(const Member& member, const CollectiveCall& call,
                                  Deadline deadline) {
  if (call.is_empty()) return GpuOperands{};
  GpuBuffers& buffers = member.session->gpus()->buffers();
  Gpu& gpu = member.gpu->gpu();
  const Result<GpuBuffer> send = buffers.find(gpu, call.send, call.send_bytes(), deadline);
  if (!send) return not_for_the_daemon(send.error(), call);
  const bool is_same = call.recv == call.send || !send->in_chunks;
  if (is_same && send->holds(call.recv, call.recv_bytes()))
    return GpuOperands{.send = *send, .recv = *send};
  const Result<GpuBuffer> recv = buffers.find(gpu, call.recv, call.recv_bytes(), deadline);
  if (!recv) return not_for_the_daemon(recv.error(), call);
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
  if (!launch.needs_daemon())
    return member->gpu->all_reduce_in_stream(call, launch, timeout_ms, stream, deadline);
  return with_second_attempt([&]() -> Status {
    if (session.lost()) return session.submission().loss();
    const Result<GpuOperands> operands = find_operands(*member, call, deadline);
    if (!operands) return operands.error();
    return member->gpu->all_reduce(call, operands->send, operands->recv, timeout_ms, stream,
                                   deadline);
  });
}

}  // namespace arcomm::client
