// AllReduce, the tickets that it leaves, and the groups that gather several.
#include "client/src/all_reduce.h"

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>

#include "client/include/arclient.h"
#include "client/src/c_api/entry_point.h"
#include "client/src/communicator.h"
#include "client/src/group.h"
#include "client/src/library.h"

namespace arcomm::client {
namespace {

static_assert(static_cast<int>(arcUint64) == static_cast<int>(DType::Uint64));
static_assert(static_cast<int>(arcAvg) == static_cast<int>(ReduceOp::Avg));

Result<Operation*> prepare_all_reduce(const void* send, void* recv, std::size_t count,
                                      arcDataType_t dtype, arcRedOp_t op, arcComm_t comm,
                                      arcStream_t stream, std::chrono::milliseconds* timeout) {
  Result<std::shared_ptr<Communicator>> communicator = find(comm);
  if (!communicator) return std::move(communicator).error();
  ARC_RETURN_IF_ERROR(check_call(send, recv, count, dtype, op, stream));
  const std::shared_ptr<Member> member = (*communicator)->member();
  if (member->session->lost()) return member->session->submission().loss();
  *timeout = operation_timeout();
  return prepare(member, make_call(send, recv, count, dtype, op), PlanId{},
                 Deadline::after(*timeout));
}

}  // namespace
}  // namespace arcomm::client

using namespace arcomm;  // NOLINT(google-build-using-namespace): this file is the translation
using namespace arcomm::client;  // NOLINT(google-build-using-namespace)

extern "C" {

arcResult_t arcAllReduce(const void* send, void* recv, size_t count, arcDataType_t dtype,
                         arcRedOp_t op, arcComm_t comm, arcStream_t stream) {
  return guarded([&]() -> Status {
    std::chrono::milliseconds timeout{};
    Result<Operation*> operation =
        prepare_all_reduce(send, recv, count, dtype, op, comm, stream, &timeout);
    if (!operation) return std::move(operation).error();
    if (Group& group = Group::of_this_thread(); group.open()) {
      group.add(**operation, timeout, true);
      return {};
    }
    start(**operation, (*operation)->deadline);
    return finish(**operation);
  });
}

arcResult_t arcAllReduceAsync(const void* send, void* recv, size_t count, arcDataType_t dtype,
                              arcRedOp_t op, arcComm_t comm, arcStream_t stream,
                              arcTicket_t* ticket) {
  return guarded([&]() -> Status {
    if (ticket == nullptr) return null_argument("ticket");
    *ticket = 0;
    std::chrono::milliseconds timeout{};
    Result<Operation*> operation =
        prepare_all_reduce(send, recv, count, dtype, op, comm, stream, &timeout);
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
