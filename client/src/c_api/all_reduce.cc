// AllReduce, the tickets that it leaves, and the groups that gather several.
#include "client/src/host/all_reduce.h"

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <utility>

#include "client/include/arclient.h"
#include "client/src/c_api/config.h"
#include "client/src/c_api/entry_point.h"
#include "client/src/gpu/gpu_all_reduce.h"
#include "client/src/host/codec_choice.h"
#include "client/src/host/in_call/in_call_path.h"
#include "client/src/session/communicator.h"
#include "client/src/session/group.h"
#include "client/src/session/library.h"

namespace arcomm::client {
namespace {

static_assert(static_cast<int>(arcUint64) == static_cast<int>(DType::Uint64));
static_assert(static_cast<int>(arcAvg) == static_cast<int>(ReduceOp::Avg));

// The member, where the call and it are sound.
Result<std::shared_ptr<Member>> member_for(const void* send, void* recv, std::size_t count,
                                           arcDataType_t dtype, arcRedOp_t op, arcComm_t comm,
                                           arcStream_t stream) {
  Result<std::shared_ptr<Member>> found = find_member(comm);
  if (!found) return found;
  const Member& member = **found;
  ARC_RETURN_IF_ERROR(check_call(send, recv, count, dtype, op, member.gpu ? nullptr : stream));
  if (member.session->lost()) return member.session->submission().loss();
  return found;
}

// Whether its ranks' calls meet, and end, without the daemon; which is to show what error classes
// come to.
bool is_in_call(const Member& member, const CollectiveCall& call) {
  return member.in_call && call.codec_origin == CodecOrigin::Named &&
         member.launches.find(launch_key_of(call)).path == LaunchPath::InCall;
}

// Blocking on the host; on GPUs it returns when the operation is on the stream.
Status all_reduce(const std::shared_ptr<Member>& member, const CollectiveCall& call,
                  arcStream_t stream) {
  // It waits for no one, so that in a group it need not wait for the group's end either.
  if (member->gpu) return all_reduce_on_gpu(member, call, stream, operation_timeout());
  const std::chrono::milliseconds timeout = operation_timeout();
  DeadlineOnDemand deadline(timeout);
  Group& group = Group::of_this_thread();
  if (!group.open() && is_in_call(*member, call)) {
    if (std::optional<Status> end = member->in_call->run(*member, call, deadline))
      return *std::move(end);
  }
  Result<Operation*> operation = prepare(member, call, PlanId{}, deadline.get());
  if (!operation) return std::move(operation).error();
  if (group.open()) {
    group.add(**operation, timeout, true);
    return {};
  }
  start(**operation, (*operation)->deadline);
  return finish(**operation);
}

// The call with the codec that it gets.
Result<CollectiveCall> coded_call(const void* send, void* recv, std::size_t count,
                                  arcDataType_t dtype, arcRedOp_t op,
                                  const std::optional<Coding>& asked, const Member& member) {
  CollectiveCall call = all_reduce_call(send, recv, count, dtype, op);
  ARC_RETURN_IF_ERROR(choose_codec(asked, member, call));
  return call;
}

Status all_reduce(const void* send, void* recv, std::size_t count, arcDataType_t dtype,
                  arcRedOp_t op, const arcAllReduceConfig_t* config, arcComm_t comm,
                  arcStream_t stream) {
  const Result<std::optional<Coding>> asked = read_config(config);
  if (!asked) return asked.error();
  const Result<std::shared_ptr<Member>> member =
      member_for(send, recv, count, dtype, op, comm, stream);
  if (!member) return member.error();
  const Result<CollectiveCall> call = coded_call(send, recv, count, dtype, op, *asked, **member);
  if (!call) return call.error();
  return all_reduce(*member, *call, stream);
}

Status all_reduce_async(const void* send, void* recv, std::size_t count, arcDataType_t dtype,
                        arcRedOp_t op, const arcAllReduceConfig_t* config, arcComm_t comm,
                        arcStream_t stream, arcTicket_t* ticket) {
  if (ticket == nullptr) return null_argument("ticket");
  *ticket = 0;
  const Result<std::optional<Coding>> asked = read_config(config);
  if (!asked) return asked.error();
  const Result<std::shared_ptr<Member>> member =
      member_for(send, recv, count, dtype, op, comm, stream);
  if (!member) return member.error();
  if ((*member)->gpu) {
    return error(ErrorCode::Unimplemented, Reason::Unsupported,
                 "there are no tickets on GPUs, where arcAllReduce is asynchronous already: order "
                 "what depends on it behind it on its stream");
  }
  const Result<CollectiveCall> call = coded_call(send, recv, count, dtype, op, *asked, **member);
  if (!call) return call.error();
  const std::chrono::milliseconds timeout = operation_timeout();
  Result<Operation*> operation = prepare(*member, *call, PlanId{}, Deadline::after(timeout));
  if (!operation) return std::move(operation).error();
  const std::uint64_t named = (*operation)->ticket.load(std::memory_order_relaxed);
  if (Group& group = Group::of_this_thread(); group.open()) {
    group.add(**operation, timeout, false);
  } else {
    start(**operation, (*operation)->deadline);
    if (!(*operation)->submitted.load(std::memory_order_relaxed)) return finish(**operation);
  }
  *ticket = named;
  return {};
}

}  // namespace
}  // namespace arcomm::client

using namespace arcomm;  // NOLINT(google-build-using-namespace): this file is the translation
using namespace arcomm::client;  // NOLINT(google-build-using-namespace)

extern "C" {

arcResult_t arcAllReduce(const void* send, void* recv, size_t count, arcDataType_t dtype,
                         arcRedOp_t op, arcComm_t comm, arcStream_t stream) {
  return guarded([&] { return all_reduce(send, recv, count, dtype, op, nullptr, comm, stream); });
}

arcResult_t arcAllReduceWith(const void* send, void* recv, size_t count, arcDataType_t dtype,
                             arcRedOp_t op, const arcAllReduceConfig_t* config, arcComm_t comm,
                             arcStream_t stream) {
  return guarded([&] { return all_reduce(send, recv, count, dtype, op, config, comm, stream); });
}

arcResult_t arcAllReduceAsync(const void* send, void* recv, size_t count, arcDataType_t dtype,
                              arcRedOp_t op, arcComm_t comm, arcStream_t stream,
                              arcTicket_t* ticket) {
  return guarded([&] {
    return all_reduce_async(send, recv, count, dtype, op, nullptr, comm, stream, ticket);
  });
}

arcResult_t arcAllReduceAsyncWith(const void* send, void* recv, size_t count, arcDataType_t dtype,
                                  arcRedOp_t op, const arcAllReduceConfig_t* config, arcComm_t comm,
                                  arcStream_t stream, arcTicket_t* ticket) {
  return guarded(
      [&] { return all_reduce_async(send, recv, count, dtype, op, config, comm, stream, ticket); });
}

arcResult_t arcCommGetCodec(arcComm_t comm, size_t count, arcDataType_t dtype, arcRedOp_t op,
                            const arcAllReduceConfig_t* config, arcCodec_t* codec) {
  return guarded([&]() -> Status {
    if (codec == nullptr) return null_argument("codec");
    const Result<std::optional<Coding>> asked = read_config(config);
    if (!asked) return asked.error();
    const Result<std::shared_ptr<Communicator>> communicator = find(comm);
    if (!communicator) return communicator.error();
    ARC_RETURN_IF_ERROR(check_call(nullptr, nullptr, 0, dtype, op, nullptr));
    const Result<CollectiveCall> call =
        coded_call(nullptr, nullptr, count, dtype, op, *asked, *(*communicator)->member());
    if (!call) return call.error();
    *codec = static_cast<arcCodec_t>(call->codec);
    return {};
  });
}

arcResult_t arcTest(arcTicket_t ticket) {
  bool in_progress = false;
  const arcResult_t result = guarded([&] { return test_ticket(ticket, &in_progress); });
  return result == arcSuccess && in_progress ? arcInProgress : result;
}

arcResult_t arcWait(arcTicket_t ticket, uint64_t timeout_ms) {
  return guarded([&] { return wait_ticket(ticket, timeout_ms); });
}

arcResult_t arcGroupStart(void) {
  return guarded([]() -> Status {
    Group::of_this_thread().start();
    return {};
  });
}

arcResult_t arcGroupEnd(void) {
  return guarded([] { return Group::of_this_thread().end(); });
}

}  // extern "C"
