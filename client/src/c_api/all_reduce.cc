// AllReduce, the tickets that it leaves, and the groups that gather several.
#include "client/src/host/all_reduce.h"

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <utility>

#include "client/include/arclient.h"
#include "client/src/c_api/entry_point.h"
#include "client/src/gpu/gpu_all_reduce.h"
#include "client/src/session/communicator.h"
#include "client/src/session/group.h"
#include "client/src/session/library.h"

namespace arcomm::client {
namespace {

static_assert(static_cast<int>(arcUint64) == static_cast<int>(DType::Uint64));
static_assert(static_cast<int>(arcAvg) == static_cast<int>(ReduceOp::Avg));
static_assert(static_cast<int>(arcCodecQ4Rotated) == static_cast<int>(Codec::Q4Rotated));

// The member, where the call and it are sound.
Result<std::shared_ptr<Member>> find_member(const void* send, void* recv, std::size_t count,
                                            arcDataType_t dtype, arcRedOp_t op, arcComm_t comm,
                                            arcStream_t stream) {
  Result<std::shared_ptr<Communicator>> communicator = find(comm);
  if (!communicator) return std::move(communicator).error();
  std::shared_ptr<Member> member = (*communicator)->member();
  ARC_RETURN_IF_ERROR(check_call(send, recv, count, dtype, op, member->gpu ? nullptr : stream));
  if (member->session->lost()) return member->session->submission().loss();
  return member;
}

Result<Operation*> prepare_on_host(const std::shared_ptr<Member>& member,
                                   const CollectiveCall& call, std::chrono::milliseconds* timeout) {
  *timeout = operation_timeout();
  return prepare(member, call, PlanId{}, Deadline::after(*timeout));
}

// Blocking on the host; on GPUs it returns when the operation is on the stream.
Status all_reduce(const std::shared_ptr<Member>& member, const CollectiveCall& call,
                  arcStream_t stream) {
  // It waits for no one, so that in a group it need not wait for the group's end either.
  if (member->gpu) return all_reduce_on_gpu(member, call, stream, operation_timeout());
  std::chrono::milliseconds timeout{};
  Result<Operation*> operation = prepare_on_host(member, call, &timeout);
  if (!operation) return std::move(operation).error();
  if (Group& group = Group::of_this_thread(); group.open()) {
    group.add(**operation, timeout, true);
    return {};
  }
  start(**operation, (*operation)->deadline);
  return finish(**operation);
}

// A caller built against a newer header has more fields: each changes the result, so that one that
// is set and not known here is no detail to leave out.
Status read_config(const arcAllReduceConfig_t* config, arcAllReduceConfig_t& known) {
  if (config == nullptr) return {};
  constexpr std::size_t kMostBytes = 4096;  // beyond what any version will have
  if (config->struct_size < sizeof(known) || config->struct_size > kMostBytes) {
    return error(ErrorCode::InvalidArgument, Reason::BadValue, "config->struct_size is ",
                 config->struct_size, ": start from ARC_ALL_REDUCE_CONFIG_INITIALIZER");
  }
  known = *config;
  const std::span more(reinterpret_cast<const unsigned char*>(config), config->struct_size);
  if (known.reserved != 0 || std::any_of(more.begin() + sizeof(known), more.end(),
                                         [](unsigned char byte) { return byte != 0; })) {
    return error(ErrorCode::InvalidArgument, Reason::Version,
                 "config has an option set that this libarclient does not know: load a newer one, "
                 "or leave the option out");
  }
  return {};
}

}  // namespace
}  // namespace arcomm::client

using namespace arcomm;  // NOLINT(google-build-using-namespace): this file is the translation
using namespace arcomm::client;  // NOLINT(google-build-using-namespace)

extern "C" {

arcResult_t arcAllReduce(const void* send, void* recv, size_t count, arcDataType_t dtype,
                         arcRedOp_t op, arcComm_t comm, arcStream_t stream) {
  return guarded([&]() -> Status {
    const Result<std::shared_ptr<Member>> member =
        find_member(send, recv, count, dtype, op, comm, stream);
    if (!member) return member.error();
    return all_reduce(*member, all_reduce_call(send, recv, count, dtype, op), stream);
  });
}

arcResult_t arcAllReduceWith(const void* send, void* recv, size_t count, arcDataType_t dtype,
                             arcRedOp_t op, const arcAllReduceConfig_t* config, arcComm_t comm,
                             arcStream_t stream) {
  return guarded([&]() -> Status {
    arcAllReduceConfig_t known = ARC_ALL_REDUCE_CONFIG_INITIALIZER;
    ARC_RETURN_IF_ERROR(read_config(config, known));
    const Result<std::shared_ptr<Member>> member =
        find_member(send, recv, count, dtype, op, comm, stream);
    if (!member) return member.error();
    // A program in C may have set any number, which as the enum's value would be none.
    int codec = 0;
    static_assert(sizeof(codec) == sizeof(known.codec));
    std::memcpy(&codec, &known.codec, sizeof(codec));
    ARC_RETURN_IF_ERROR(check_codec(codec, dtype, op));
    CollectiveCall call = all_reduce_call(send, recv, count, dtype, op);
    call.codec = static_cast<Codec>(codec);
    if (call.codec != Codec::None && (*member)->gpu) {
      return error(ErrorCode::InvalidArgument, Reason::Unsupported, "codec ", text_of(call.codec),
                   " does not serve GPUs yet: ask for no codec");
    }
    return all_reduce(*member, call, stream);
  });
}

arcResult_t arcAllReduceAsync(const void* send, void* recv, size_t count, arcDataType_t dtype,
                              arcRedOp_t op, arcComm_t comm, arcStream_t stream,
                              arcTicket_t* ticket) {
  return guarded([&]() -> Status {
    if (ticket == nullptr) return null_argument("ticket");
    *ticket = 0;
    const Result<std::shared_ptr<Member>> member =
        find_member(send, recv, count, dtype, op, comm, stream);
    if (!member) return member.error();
    if ((*member)->gpu) {
      return error(
          ErrorCode::Unimplemented, Reason::Unsupported,
          "there are no tickets on GPUs, where arcAllReduce is asynchronous already: order "
          "what depends on it behind it on its stream");
    }
    std::chrono::milliseconds timeout{};
    Result<Operation*> operation =
        prepare_on_host(*member, all_reduce_call(send, recv, count, dtype, op), &timeout);
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
