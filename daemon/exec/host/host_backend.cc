#include "daemon/exec/host/host_backend.h"

#include <sched.h>

#include <utility>

#include "daemon/exec/clock.h"

namespace arcomm {
namespace {

// A communicator's choices are those of its first day: all of its epoch is planned alike.
struct HostTuning final : CommunicatorExtension {
  explicit HostTuning(std::shared_ptr<const TuningTable> its) : table(std::move(its)) {}
  const std::shared_ptr<const TuningTable> table;
};

const TuningTable& tuning_of(const Communicator& communicator) {
  return *static_cast<const HostTuning&>(*communicator.extension).table;
}

// The seats' inputs and outputs: all there are on one node.
void fill(AllReduceArgs& args, const Arrival& arrival, const Communicator& communicator) {
  static_assert(kCollectives == 1, "called as an AllReduce, whatever the signature says");
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

OpenBackend host_backend_on(Device& device) {
  return [&device](const BackendParts& parts) -> Result<std::unique_ptr<Backend>> {
    const Settings::Net& net = parts.settings.net;
    Result<std::unique_ptr<HostBackend>> backend = HostBackend::create(
        device, parts.settings.host.streams, parts.buffers, parts.tuning,
        {.bytes = net.staging_bytes, .at_once = !net.peers.empty() || !net.listen.empty()});
    if (!backend) return std::move(backend).error();
    return std::unique_ptr<Backend>(std::move(backend).value());
  };
}

Result<std::unique_ptr<HostBackend>> HostBackend::create(Device& device, std::uint64_t threads,
                                                         BufferRegistry& buffers,
                                                         std::shared_ptr<const TuningTable> tuning,
                                                         HostStaging staging) {
  const DeviceShape shape = host_shape(threads);
  Result<std::unique_ptr<HostLauncher>> launcher = HostLauncher::create(device, shape.streams);
  if (!launcher) return std::move(launcher).error();
  auto pool = std::make_unique<StagingPool>(device, staging.bytes);
  if (staging.at_once) ARC_RETURN_IF_ERROR(pool->open());
  return std::unique_ptr<HostBackend>(new HostBackend(std::move(launcher).value(), shape, buffers,
                                                      std::move(tuning), std::move(pool)));
}

HostBackend::HostBackend(std::unique_ptr<HostLauncher> launcher, DeviceShape shape,
                         BufferRegistry& buffers, std::shared_ptr<const TuningTable> tuning,
                         std::unique_ptr<StagingPool> staging)
    : buffers_(buffers),
      tuning_(std::move(tuning)),
      shape_(shape),
      staging_(std::move(staging)),
      launcher_(std::move(launcher)) {
  running_.reserve(HostLauncher::kMaxJobs);
  backlog_.reserve(HostLauncher::kMaxJobs);
}

Backend::Started HostBackend::start(Communicator& communicator, std::uint64_t now_ns,
                                    Failure& failure) {
  if (!communicator.world.is_one_node())
    return network_->start(communicator, *offered_, now_ns, failure);
  switch (begin(communicator, now_ns, backlog_.empty())) {
    case Begun::Ended:
      failure = Failure{};
      return Started::Ended;
    case Begun::Waits:
      backlog_.push_back(&communicator);
      break;
    case Begun::Running:
      break;
  }
  return Started::Running;
}

HostBackend::Begun HostBackend::begin(Communicator& communicator, std::uint64_t now_ns,
                                      bool is_next) {
  Arrival& arrival = *communicator.board.head();
  const auto seats = static_cast<std::uint32_t>(communicator.seats.size());
  const Plan plan = make_plan(arrival.signature, seats, shape_, tuning_of(communicator));
  std::uint8_t algorithm = 0;
  TileJob* job = nullptr;
  for (const Step& step : plan.steps()) {
    const Choice& choice = std::get<LaunchStep>(step).choice;
    algorithm = static_cast<std::uint8_t>(choice.algorithm);
    fill(args_, arrival, communicator);
    if (entry_of(choice.algorithm).is_tiled) {
      if (is_next) job = launcher_->start(choice, args_);
      if (job == nullptr) return Begun::Waits;
    } else {
      all_reduce_range(choice, args_, 0, args_.count);
    }
  }
  for (std::uint32_t seat = 0; seat < seats; ++seat) {
    FlightRecord& record = arrival.operations[seat]->record;
    record.matched_ns = arrival.matched_ns;
    record.launched_ns = now_ns;
    record.algorithm = algorithm;
  }
  if (job == nullptr) return Begun::Ended;
  running_.push_back({&communicator, job});
  return Begun::Running;
}

NetworkExecutor* HostBackend::span_nodes(Links& links, const OfferedData& offered) {
  offered_ = &offered;
  network_ = std::make_unique<HostNetwork>(*staging_, links);
  return network_.get();
}

bool HostBackend::work() {
  const bool moved = network_ != nullptr && network_->work();
  for (std::size_t tried = 0; tried < running_.size(); ++tried) {
    worked_last_ = (worked_last_ + 1) % running_.size();
    if (launcher_->work(*running_[worked_last_].job)) return true;
  }
  return moved;
}

bool HostBackend::collect(std::vector<Outcome>& outcomes) {
  bool found = network_ != nullptr && network_->collect(outcomes);
  for (std::size_t i = 0; i < running_.size();) {
    const Run run = running_[i];
    if (!launcher_->finished(*run.job)) {
      ++i;
      continue;
    }
    running_.erase(running_.begin() + static_cast<std::ptrdiff_t>(i));
    // Every byte was written: a failure that came too late to stop it has not touched the result.
    const bool whole = launcher_->whole(*run.job);
    const Failure failure = whole ? Failure{} : run.communicator->board.head()->failure;
    launcher_->release(*run.job);
    outcomes.push_back({.communicator = run.communicator, .failure = failure});
    found = true;
  }
  return begin_backlog(outcomes) || found;
}

bool HostBackend::begin_backlog(std::vector<Outcome>& outcomes) {
  bool found = false, has_job = true;
  for (std::size_t i = 0; i < backlog_.size();) {
    Communicator& communicator = *backlog_[i];
    const Arrival& arrival = *communicator.board.head();
    Outcome outcome{.communicator = &communicator, .failure = arrival.failure};  // was it stopped?
    if (arrival.failure.ok()) {
      const std::uint64_t now = has_job ? now_ns() : 0;
      Begun begun = Begun::Waits;
      // What is late is stopped by the next sweep of deadlines.
      if (has_job && arrival.deadline_ns > now) {
        begun = begin(communicator, now, true);
        has_job = begun != Begun::Waits;
      }
      if (begun == Begun::Waits) {
        ++i;
        continue;
      }
      outcome.ended = begun == Begun::Ended;
    }
    backlog_.erase(backlog_.begin() + static_cast<std::ptrdiff_t>(i));
    if (outcome.ended) outcomes.push_back(outcome);
    found = true;
  }
  return found;
}

void HostBackend::stop(Communicator& communicator) {
  if (network_ != nullptr) network_->stop(communicator);
  for (const Run& run : running_) {
    if (run.communicator == &communicator) launcher_->stop(*run.job);
  }
}

Result<bool> HostBackend::form(const CommunicatorSpec&,
                               std::unique_ptr<CommunicatorExtension>& made) {
  made = std::make_unique<HostTuning>(tuning_);
  return true;
}

Result<BufferId> HostBackend::add_buffer(SessionId session, BufferSpec& spec) {
  return buffers_.add(session, std::move(spec.memory), spec.handle.offset_bytes,
                      spec.handle.length_bytes);
}

}  // namespace arcomm
