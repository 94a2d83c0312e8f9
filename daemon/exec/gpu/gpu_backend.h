// The backend of a worker that serves GPUs, several at once. Operations reach it on three launch
// paths: in-stream (clients run them by themselves), resident (the grids take them from the
// doorbells) and launched (the worker matches and launches them, speculatively where it can tell
// what comes). Thread: the worker's. Memory comes and goes only while all GPUs are quiesced, which
// takes microseconds, and where other work holds a GPU up what the turn's budget has left.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "daemon/exec/backend.h"
#include "daemon/exec/gpu/gpu_executor.h"
#include "daemon/exec/gpu/group/gpu_groups.h"
#include "daemon/exec/gpu/group/path_watch.h"
#include "daemon/exec/gpu/measure/gpu_measurements.h"
#include "daemon/exec/gpu/network/gpu_network.h"
#include "daemon/exec/open_backend.h"
#include "daemon/plan/gpu_planner.h"

namespace arcomm {

class GpuBackend final : public Backend {
 public:
  // Opens every GPU; slow. `open`: how; empty: as this build does it.
  static Result<std::unique_ptr<GpuBackend>> create(const std::vector<Device*>& gpus,
                                                    const OpenGpu& open, const BackendParts& parts);

  void begin_turn() override { groups_->turn.begin_turn(); }
  std::span<const DoorbellCall> poll() override;
  int turns_behind() const override { return 2 + static_cast<int>(Speculation::kMost); }
  Started start(Communicator& communicator, std::uint64_t now_ns, Failure& failure) override {
    return communicator.spans_nodes() ? network_->start(communicator, *offered_, now_ns, failure)
                                      : executor_.start(communicator, now_ns, failure);
  }
  bool work() override { return network_ != nullptr && network_->work(); }
  bool collect(std::vector<Outcome>& outcomes) override {
    const bool found = network_ != nullptr && network_->collect(outcomes);
    return executor_.collect(outcomes) || found;
  }
  void stop(Communicator& communicator) override;
  std::span<const PathFailure> tend(std::uint64_t now_ns) override;
  bool idle() const override { return executor_.idle() && network_is_idle(); }
  std::uint64_t rest_ns(std::uint64_t now_ns) const override;
  bool lost() const override { return groups_->lost(); }

  void use_settings(const Settings& settings) override;
  void use_tuning(std::shared_ptr<const TuningTable> tuning) override {
    planner_.use_tuning(std::move(tuning));
  }
  void begin_drain() override;

  void in_one_quiescing(const std::function<void()>& act) override {
    groups_->quiescer.in_one_quiescing(act);
  }

  Result<BufferId> add_buffer(SessionId session, BufferSpec& spec) override;
  Result<AllocatedBuffer> allocate_buffer(SessionId session, const AllocationSpec& spec) override;
  void release(RemovedBuffer removed) override;
  Result<Released> keeps_released() override;
  Result<bool> let_go_of_released() override;

  Status bind(PlanId id, PersistentPlan& plan, const CheckedRange& send,
              const CheckedRange& recv) override;
  Status unbind(PlanId id, const PersistentPlan& plan) override;
  void unbind_all(std::span<const PlanId> plans) override;

  Result<bool> form(const CommunicatorSpec& spec,
                    std::unique_ptr<CommunicatorExtension>& made) override;
  void adopt(Communicator& communicator) override { groups_->adopt(communicator); }
  void leave(Communicator& communicator, Rank rank) override;
  void abort(Communicator& communicator, Rank rank) override;
  Result<MailboxDescriptors> export_mailbox(const Communicator& communicator,
                                            Rank rank) const override {
    return groups_->export_mailbox(*gpus_of(communicator), local_rank(communicator, rank));
  }
  void describe(const Communicator& communicator, CommunicatorSnapshot& shot) const override {
    PathWatch::describe(*gpus_of(communicator), shot);
  }

  bool on_gpus() const override { return true; }
  bool takes_cores() const override { return false; }
  bool is_quiesced_for_changes() const override { return true; }
  bool may_be_left_running() const override { return true; }
  bool starts_by_doorbell() const override { return true; }
  std::uint64_t operations_elsewhere() const override;

  NetworkExecutor* span_nodes(Links& links, const OfferedData& offered) override;

  Status begin_measuring(std::uint32_t ranks, std::uint64_t room_bytes) override {
    return measurements_.begin(ranks, room_bytes);
  }
  Result<std::optional<std::uint64_t>> prepare_measuring() override {
    return measurements_.prepare();
  }
  Status measure(GpuMeasurement what) override { return measurements_.measure(what); }
  Result<std::optional<double>> measured() override { return measurements_.measured(); }
  void end_measuring() override { measurements_.end(); }
  Status begin_flag_echo(std::uint32_t gpu) override { return measurements_.begin_flag_echo(gpu); }
  Result<std::optional<FlagEcho>> flag_echo() override { return measurements_.flag_echo(); }
  bool shut_down() override;

 private:
  GpuBackend(const BackendParts& parts, std::unique_ptr<GpuGroups> groups);
  // What devices keep and nobody wants any more goes as other memory does.
  void defer_abandoned(bool is_needed);
  bool network_is_idle() const { return network_ == nullptr || network_->idle(); }

  BufferRegistry& buffers_;
  const PlanTable& plans_;
  Metrics& metrics_;
  std::unique_ptr<GpuGroups> groups_;
  GpuPlanner planner_;  // of communicators to come
  GpuExecutor executor_;
  PathWatch watch_{*groups_};
  GpuNetwork::Staging staging_;
  std::unique_ptr<GpuNetwork> network_;  // null: it has no memory, and there is no other node
  const OfferedData* offered_ = nullptr;
  GpuMeasurements measurements_{*groups_};
  std::vector<DoorbellCall> calls_;
  std::uint64_t lease_ns_ = 0;
  bool cuda_ipc_ = true;        // settings' word, for memory to come
  std::uint64_t early_ns_ = 0;  // net.gpu_early_us
  std::uint64_t asked_health_ns_ = 0;
  LettingGoLooks looks_at_uncleared_;
  std::uint64_t shutting_down_ns_ = 0;
  // As the settings say, in the end: operations whose plans name no timeout.
  std::uint64_t default_timeout_ns_ = 0, max_timeout_ns_ = 0;
};

// Backends of these GPUs, the first of which is the default. They outlive the backend.
OpenBackend gpu_backend_on(std::vector<Device*> gpus, OpenGpu open = nullptr);

}  // namespace arcomm
