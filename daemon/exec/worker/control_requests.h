// What control asks a worker for: the rare calls, answered between two turns of its loop.
// Thread: the worker's. `done` is called once, and must not call back synchronously.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "daemon/exec/worker/worker.h"

namespace arcomm {

class ControlRequests {
 public:
  template <typename T>
  using Done = DeviceWorker::Done<T>;

  explicit ControlRequests(Worker& worker)
      : worker_(worker), state_(worker.state()), departures_(worker.departures()) {}

  // As DeviceWorker's of these names.
  Status open_session(SessionSpec spec, std::uint64_t now_ns);
  void close_session(SessionId session, Reason reason, const std::string& why, Done<void> done);
  Result<BufferId> add_buffer(SessionId session, BufferSpec& spec);
  // What was not added, and will not be: closed elsewhere.
  void let_go(BufferSpec& spec);
  Result<AllocatedBuffer> allocate_buffer(SessionId session, const AllocationSpec& spec);
  Status remove_buffer(SessionId session, BufferId buffer);
  Result<PlanId> add_plan(SessionId session, const PlanSpec& spec);
  void pay_plans(SessionId session, std::uint64_t more);
  Status remove_plan(SessionId session, PlanId plan);
  // None: there is more to do, in another turn, with what was made of it.
  Result<std::optional<std::vector<MemberId>>> form_communicator(
      const CommunicatorSpec& spec, std::unique_ptr<CommunicatorExtension>& made);
  // Both answer once every operation of the member has ended, those too that were still to run:
  // from then on the caller's memory is the caller's alone. Asked again meanwhile, they answer at
  // that time too.
  void abort_communicator(SessionId session, MemberId member, const std::string& why,
                          Done<void> done);
  void leave_communicator(SessionId session, MemberId member, Done<void> done);
  Result<CommunicatorSnapshot> describe(SessionId session, MemberId member) const;
  Result<MailboxDescriptors> export_mailbox(SessionId session, MemberId member) const;
  // As Backend's of these names.
  Status begin_measuring(std::uint32_t ranks, std::uint64_t room_bytes);
  Result<std::optional<std::uint64_t>> prepare_measuring();
  void measure(GpuMeasurement what, const DeviceWorker::Done<double>& done);
  void measure_flag(std::uint32_t gpu, const DeviceWorker::Done<FlagEcho>& done);
  // Asks the backend for what it measures, and answers. Whether something is being measured.
  bool go_on_measuring();
  void stop_measuring(const Error& why);
  void end_measuring() { state_.backend->end_measuring(); }
  WorkerSnapshot inspect();
  void use_settings(std::shared_ptr<const Settings> settings);
  void use_tuning(std::shared_ptr<const TuningTable> tuning) {
    state_.backend->use_tuning(std::move(tuning));
  }
  void drain(std::uint64_t deadline_ns, Done<void> done);

  int doorbell_of(SessionId session) const;  // -1 where there is no such session
  void set_busy(double fraction) { busy_fraction_ = fraction; }

 private:
  Status check_may_measure() const;
  // Answers the caller that waits once there is an answer. Whether one waits.
  template <typename T, typename Look>
  bool go_on(DeviceWorker::Done<T>& waits, Look look);
  // Who is to sit where: each seat's session is there.
  Result<std::vector<Seat>> take_seats(const CommunicatorSpec& spec, const World& world) const;
  CommunicatorSnapshot snapshot(const Communicator& communicator, std::uint64_t now_ns) const;

  Worker& worker_;
  WorkerState& state_;
  Departures& departures_;
  DeviceWorker::Done<double> measuring_;         // waits for what the backend measures; or empty
  DeviceWorker::Done<FlagEcho> flag_measuring_;  // likewise
  double busy_fraction_ = 0;
};

}  // namespace arcomm
