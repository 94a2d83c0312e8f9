// An operation whose arguments were checked and registered once. Where both buffers are within the
// daemon's reach and one request suffices, a start is one small request; otherwise it is an
// ordinary operation with the same arguments. Thread: any; one start at a time. Ownership: the
// handle table; holds its buffers in use.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>

#include "client/src/gpu/gpu_plan_cache.h"
#include "client/src/host/all_reduce.h"
#include "client/src/session/communicator.h"
#include "client/src/session/handle_table.h"
#include "proto/status.h"

namespace arcomm::client {

class Plan {
 public:
  static Result<std::shared_ptr<Plan>> create(std::shared_ptr<Communicator> communicator,
                                              const CollectiveCall& call);
  ~Plan();
  Plan(const Plan&) = delete;
  Plan& operator=(const Plan&) = delete;

  // Prepares a start; the caller submits it (now or at the end of a group).
  Result<Operation*> prepare_start(Deadline deadline);
  Status wait(std::uint64_t timeout_ms);
  Status destroy();

  bool is_on_gpu() const { return member_->gpu != nullptr; }
  // Stream-ordered, any number at a time.
  Status start_on_gpu(void* stream, Deadline deadline);

 private:
  Plan(std::shared_ptr<Communicator> communicator, std::shared_ptr<Member> member,
       const CollectiveCall& call)
      : communicator_(std::move(communicator)), member_(std::move(member)), call_(call) {}

  const std::shared_ptr<Communicator> communicator_;
  const std::shared_ptr<Member> member_;
  const CollectiveCall call_;
  SharedRange send_, recv_;
  PlanId id_;                            // invalid: the daemon does not know the plan
  std::optional<GpuPlanKey> gpu_key_;    // none: in-stream, a call like any other
  std::chrono::milliseconds timeout_{};  // of each start on a GPU, then
  bool in_chunks_ = false;  // its memory may change under its addresses: every start looks

  std::mutex mutex_;
  std::uint64_t ticket_ = 0;  // of the start in flight
  bool preparing_ = false;    // a start is being prepared, outside the lock
};

using PlanTable = HandleTable<Plan>;
PlanTable& plans();

}  // namespace arcomm::client
