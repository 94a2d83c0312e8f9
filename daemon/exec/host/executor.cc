#include "daemon/exec/host/executor.h"

#include <sched.h>

#include <utility>

#include "daemon/exec/clock.h"

namespace arcomm {
namespace {

// The seats' inputs and outputs: all there are on one node.
void fill(AllReduceArgs& args, const Arrival& arrival, const Communicator& communicator) {
  const auto seats = static_cast<std::uint32_t>(communicator.seats.size());
  args.count = arrival.signature.send_count;
  args.num_inputs = args.num_outputs = seats;
  args.divisor = static_cast<std::uint32_t>(communicator.ranks());
  args.dtype = arrival.signature.dtype;
  args.op = arrival.signature.op;
  args.codec = arrival.signature.codec;
  for (std::uint32_t seat = 0; seat < seats; ++seat) {
    args.inputs[seat] = arrival.operations[seat]->send;
    args.outputs[seat] = arrival.operations[seat]->recv;
  }
}

}  // namespace

Result<std::unique_ptr<Executor>> Executor::create(Device& device, std::uint64_t threads,
                                                   CommunicatorTable& communicators,
                                                   std::shared_ptr<const TuningTable> tuning) {
  const DeviceShape shape = host_shape(threads);
  Result<std::unique_ptr<HostLauncher>> launcher = HostLauncher::create(device, shape.streams);
  if (!launcher) return std::move(launcher).error();
  return std::unique_ptr<Executor>(
      new Executor(std::move(launcher).value(), shape, communicators, std::move(tuning)));
}

Executor::Executor(std::unique_ptr<HostLauncher> launcher, DeviceShape shape,
                   CommunicatorTable& communicators, std::shared_ptr<const TuningTable> tuning)
    : communicators_(communicators),
      tuning_(std::move(tuning)),
      shape_(shape),
      launcher_(std::move(launcher)) {
  running_.reserve(HostLauncher::kMaxJobs);
  backlog_.reserve(HostLauncher::kMaxJobs);
}

bool Executor::start_next() {
  if (!backlog_.empty() && start(*backlog_.front())) {
    backlog_.erase(backlog_.begin());
    return true;
  }
  Communicator* communicator = communicators_.next_ready();
  if (communicator == nullptr) return false;
  if (!start(*communicator)) backlog_.push_back(communicator);
  return true;
}

bool Executor::start(Communicator& communicator) {
  Arrival& arrival = *communicator.board.head();
  if (!arrival.failure.ok()) {  // stopped while it waited for a job
    communicators_.completed(communicator, arrival.failure);
    return true;
  }
  const std::uint64_t launched_ns = now_ns();
  if (arrival.deadline_ns <= launched_ns) {
    communicators_.expire(communicator, launched_ns);
    communicators_.completed(communicator, arrival.failure);
    return true;
  }
  const auto seats = static_cast<std::uint32_t>(communicator.seats.size());
  const Plan plan = make_plan(arrival.signature, seats, shape_, *tuning_);
  std::uint8_t algorithm = 0;
  TileJob* job = nullptr;
  for (const Step& step : plan.steps()) {
    const Choice& choice = std::get<LaunchStep>(step).choice;
    algorithm = static_cast<std::uint8_t>(choice.algorithm);
    fill(args_, arrival, communicator);
    if (entry_of(choice.algorithm).is_tiled) {
      job = launcher_->start(choice, args_);
      if (job == nullptr) return false;
    } else {
      all_reduce_range(choice, args_, 0, args_.count);
    }
  }
  for (std::uint32_t seat = 0; seat < seats; ++seat) {
    FlightRecord& record = arrival.operations[seat]->record;
    record.matched_ns = arrival.matched_ns;
    record.launched_ns = launched_ns;
    record.algorithm = algorithm;
  }
  if (job == nullptr) {
    communicators_.completed(communicator, Failure{});
  } else {
    running_.push_back({&communicator, job});
  }
  return true;
}

bool Executor::work() {
  for (std::size_t tried = 0; tried < running_.size(); ++tried) {
    worked_last_ = (worked_last_ + 1) % running_.size();
    if (launcher_->work(*running_[worked_last_].job)) return true;
  }
  return false;
}

bool Executor::reap() {
  bool found = false;
  for (std::size_t i = 0; i < running_.size();) {
    const Run run = running_[i];
    if (!launcher_->finished(*run.job)) {
      ++i;
      continue;
    }
    running_.erase(running_.begin() + static_cast<std::ptrdiff_t>(i));
    // Every byte was written: a failure that came too late to stop it has not touched the result.
    const bool whole = launcher_->whole(*run.job);
    const Failure outcome = whole ? Failure{} : run.communicator->board.head()->failure;
    launcher_->release(*run.job);
    communicators_.completed(*run.communicator, outcome);
    found = true;
  }
  return found;
}

void Executor::stop(const Communicator& communicator) {
  for (const Run& run : running_) {
    if (run.communicator == &communicator) launcher_->stop(*run.job);
  }
}

void Executor::drain() {
  while (!idle()) {
    while (start_next()) {
    }
    if (!work() && !reap()) ::sched_yield();
  }
}

}  // namespace arcomm
