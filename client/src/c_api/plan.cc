#include "client/src/host/plan.h"

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <utility>

#include "client/include/arclient.h"
#include "client/src/c_api/config.h"
#include "client/src/c_api/entry_point.h"
#include "client/src/host/all_reduce.h"
#include "client/src/host/codec_choice.h"
#include "client/src/session/communicator.h"
#include "client/src/session/group.h"

namespace arcomm::client {
namespace {

Result<std::shared_ptr<Plan>> find(arcPlan_t handle) {
  std::shared_ptr<Plan> found = plans().find(reinterpret_cast<std::uintptr_t>(handle));
  if (found) return found;
  if (handle == nullptr) return null_argument("plan");
  return error(ErrorCode::NotFound, Reason::UnknownHandle, "plan ", static_cast<void*>(handle),
               " is not a plan, or was destroyed");
}

Error inside_group(const char* call) {
  return error(ErrorCode::FailedPrecondition, Reason::BadValue, call,
               " would wait for operations of a group that is still open: call arcGroupEnd first");
}

}  // namespace
}  // namespace arcomm::client

using namespace arcomm;  // NOLINT(google-build-using-namespace): this file is the translation
using namespace arcomm::client;  // NOLINT(google-build-using-namespace)

extern "C" {

arcResult_t arcPlanCreateAllReduce(arcPlan_t* plan, const void* send, void* recv, size_t count,
                                   arcDataType_t dtype, arcRedOp_t op, arcComm_t comm) {
  return arcPlanCreateAllReduceWith(plan, send, recv, count, dtype, op, nullptr, comm);
}

arcResult_t arcPlanCreateAllReduceWith(arcPlan_t* plan, const void* send, void* recv, size_t count,
                                       arcDataType_t dtype, arcRedOp_t op,
                                       const arcAllReduceConfig_t* config, arcComm_t comm) {
  return guarded([&]() -> Status {
    if (plan == nullptr) return null_argument("plan");
    *plan = nullptr;
    const Result<std::optional<Coding>> asked = read_config(config);
    if (!asked) return asked.error();
    Result<std::shared_ptr<Communicator>> communicator = find(comm);
    if (!communicator) return std::move(communicator).error();
    ARC_RETURN_IF_ERROR(check_call(send, recv, count, dtype, op, nullptr));
    CollectiveCall call = all_reduce_call(send, recv, count, dtype, op);
    ARC_RETURN_IF_ERROR(choose_codec(*asked, *(*communicator)->member(), call));
    Result<std::shared_ptr<Plan>> made = Plan::create(std::move(*communicator), call);
    if (!made) return std::move(made).error();
    *plan = reinterpret_cast<arcPlan_t>(plans().insert(std::move(*made)));
    return {};
  });
}

arcResult_t arcPlanStart(arcPlan_t plan, arcStream_t stream) {
  return guarded([&]() -> Status {
    Result<std::shared_ptr<Plan>> found = find(plan);
    if (!found) return std::move(found).error();
    if ((*found)->is_on_gpu()) {
      return (*found)->start_on_gpu(stream, Deadline::after(operation_timeout()));
    }
    ARC_RETURN_IF_ERROR(check_call(nullptr, nullptr, 0, 0, 0, stream));
    const std::chrono::milliseconds timeout = operation_timeout();
    Result<Operation*> operation = (*found)->prepare_start(Deadline::after(timeout));
    if (!operation) return std::move(operation).error();
    if (Group& group = Group::of_this_thread(); group.open()) {
      group.add(**operation, timeout, false);
    } else {
      start(**operation, (*operation)->deadline);
      if (!(*operation)->submitted.load(std::memory_order_relaxed)) return (*found)->wait(0);
    }
    return {};
  });
}

arcResult_t arcPlanWait(arcPlan_t plan, uint64_t timeout_ms) {
  return guarded([&]() -> Status {
    Result<std::shared_ptr<Plan>> found = find(plan);
    if (!found) return std::move(found).error();
    if (Group::of_this_thread().open()) return inside_group("arcPlanWait");
    return (*found)->wait(timeout_ms);
  });
}

arcResult_t arcPlanDestroy(arcPlan_t plan) {
  return guarded([&]() -> Status {
    Result<std::shared_ptr<Plan>> found = find(plan);
    if (!found) return std::move(found).error();
    ARC_RETURN_IF_ERROR((*found)->destroy());
    plans().take(reinterpret_cast<std::uintptr_t>(plan));
    return {};
  });
}

}  // extern "C"
