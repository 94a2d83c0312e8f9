#include "daemon/daemon.h"

#include <poll.h>
#include <pthread.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "daemon/exit_status.h"
#include "daemon/own_folder.h"
#include "daemon/telemetry/log/log.h"

namespace arcomm {
namespace {

const std::string kRecorderName = "recorder";  // in systemd's descriptor store, with a number
constexpr std::chrono::seconds kCalmWatch{
    5};  // how often workers are looked at when systemd does not ask

// Connections and buffers are descriptors: take all that the service manager allows.
void raise_descriptor_limit() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= limit.rlim_max) return;
  limit.rlim_cur = limit.rlim_max;
  ::setrlimit(RLIMIT_NOFILE, &limit);
}

int read_signal(int signals) {
  signalfd_siginfo info{};
  return ::read(signals, &info, sizeof(info)) == static_cast<ssize_t>(sizeof(info))
             ? static_cast<int>(info.ssi_signo)
             : 0;
}

}  // namespace

sigset_t blocked_signals() {
  sigset_t signals;
  ::sigemptyset(&signals);
  for (const int one : {SIGTERM, SIGINT, SIGHUP, SIGUSR1}) ::sigaddset(&signals, one);
  return signals;
}

Daemon::Daemon(LoadRequest request, Loaded loaded)
    : request_(std::move(request)),
      started_(std::chrono::steady_clock::now()),
      service_(ServiceManager::from_environment()),
      loaded_(std::move(loaded)),
      warnings_(loaded_.warnings) {}

Result<std::unique_ptr<Daemon>> Daemon::start(LoadRequest request, Loaded loaded) {
  std::unique_ptr<Daemon> daemon(new Daemon(std::move(request), std::move(loaded)));
  if (Status opened = daemon->open(); !opened) {
    daemon->stop();
    return opened.error();
  }
  return daemon;
}

Status Daemon::open() {
  const Settings& settings = loaded_.settings;
  raise_descriptor_limit();
  Result<InstanceLock> lock = InstanceLock::take(settings.runtime_dir);
  if (!lock) return lock.error();
  lock_ = std::make_unique<InstanceLock>(std::move(lock).value());
  if (const Status own = own_folder(settings.state_dir, 0750); !own)
    warnings_.push_back(own.error().message);
  if (::access(settings.state_dir.c_str(), W_OK) != 0) {
    warnings_.push_back("state_dir " + settings.state_dir + " cannot be written (" +
                        std::strerror(errno) +
                        "): tuning and flight-recorder dumps will not be saved");
  }
  load_tuning_table();
  load_network_tuning();
  Result<std::vector<InheritedSocket>> passed = inherited_sockets();
  if (!passed) return passed.error();
  read_previous_recorders(*passed);
  kept_rings_.end_previous(*passed);
  unstore_strangers(*passed);

  Result<std::unique_ptr<ControlPlane>> control =
      ControlPlane::create({.metrics = metrics_,
                            .settings = std::make_shared<const Settings>(settings),
                            .kept_rings = kept_rings_,
                            .actions = *this});
  if (!control) return control.error();
  control_ = std::move(control).value();
  control_->use_network_tuning(network_tuning_);
  ARC_RETURN_IF_ERROR(open_workers());
  Result<std::vector<ListeningSocket>> sockets =
      open_sockets(settings, AccessGroups::look_up(settings.access), std::move(*passed), warnings_);
  if (!sockets) return sockets.error();
  open_metrics();
  std::vector<WorkerRef> workers;
  for (Served& one : served_) {
    std::vector<std::string> gpus;
    std::vector<std::uint64_t> gpu_bytes;
    for (const auto& device : one.devices.devices) {
      if (!one.devices.on_gpus()) continue;
      gpus.push_back(device->name());
      gpu_bytes.push_back(device->memory_bytes());
    }
    workers.push_back({one.devices.name, one.worker.get(), one.recorder.get(), std::move(gpus),
                       one.devices.only_uid, std::move(gpu_bytes)});
  }
  ARC_RETURN_IF_ERROR(control_->serve(std::move(workers), std::move(sockets).value()));
  watch_.add(
      "the control loop", [this] { return control_->turns(); }, [this] { control_->nudge(); },
      std::chrono::steady_clock::now());
  watch_.add(
      "the control plane's gRPC server", [this] { return control_->rpc_beats(); },
      [this] { control_->nudge_rpc(); }, std::chrono::steady_clock::now());

  // Only now: what the dead daemon left stays there for as long as its successor does not serve.
  for (std::size_t i = 0; i < served_.size(); ++i) {
    const std::string name = kRecorderName + std::to_string(i);
    service_.unstore(name);
    service_.store(served_[i].recorder->memfd(), name);
  }
  for (const std::string& warning : warnings_) log::warn("{}", warning);
  log::info("ready: {} in {}, tuning {}", served_.front().devices.name, settings.runtime_dir,
            tuning_->source);
  service_.ready("serving " + served_.front().devices.name + " in " + settings.runtime_dir);
  return {};
}

Status Daemon::open_workers() {
  const auto settings = std::make_shared<const Settings>(loaded_.settings);
  Result<NodeBackend> backend = open_backend(*settings);
  if (!backend) return backend.error();
  backend_ = std::make_unique<NodeBackend>(std::move(backend).value());
  for (const std::string& note : backend_->notes) log::info("{}", note);
  warnings_.insert(warnings_.end(), backend_->warnings.begin(), backend_->warnings.end());
  worker_ended_ = UniqueFd(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!worker_ended_) {
    return error(ErrorCode::ResourceExhausted, Reason::OutOfMemory,
                 "cannot make an eventfd: ", std::strerror(errno));
  }
  for (ServedDevices& devices : backend_->workers) {
    const auto records = static_cast<std::size_t>(settings->recorder.records);
    const bool has_peers = Peers::are_wanted(*settings);
    Result<std::unique_ptr<FlightRecorder>> recorder =
        FlightRecorder::create(records, has_peers ? records : 0);
    if (!recorder) return recorder.error();
    Result<std::unique_ptr<DeviceWorker>> worker =
        DeviceWorker::create({.device = devices.devices.front()->name(),
                              .open_backend = devices.open,
                              .recorder = **recorder,
                              .metrics = metrics_,
                              .settings = settings,
                              .tuning = tuning_,
                              .events = control_->events(served_.size())});
    if (!worker) return worker.error();
    served_.push_back(
        {std::move(devices), std::move(recorder).value(), std::move(worker).value(), {}});
  }
  backend_->workers.clear();
  for (Served& one : served_) {
    one.thread = std::thread([worker = one.worker.get(), ended = worker_ended_.get()] {
      ::pthread_setname_np(::pthread_self(), "arc-worker");
      worker->run();
      const std::uint64_t once = 1;
      (void)!::write(ended, &once, sizeof(once));
    });
    watch_.add(one.devices.name, *one.worker, std::chrono::steady_clock::now());
  }
  return {};
}

void Daemon::read_previous_recorders(std::vector<InheritedSocket>& passed) {
  std::erase_if(passed, [this](const InheritedSocket& one) {
    if (!one.name.starts_with(kRecorderName)) return false;
    Result<FlightLog> log = FlightRecorder::read(one.fd.get());
    if (log) {
      log::info("{} operations of the previous daemon were kept: arctl trace --previous",
                log->operations.size());
      previous_.append(*log);
    } else {
      log::info("the previous daemon's {} is not shown: {}", one.name, log.error().message);
      service_.unstore(one.name);
    }
    return true;
  });
}

void Daemon::unstore_strangers(const std::vector<InheritedSocket>& passed) {
  for (const InheritedSocket& one : passed) {
    if (one.path.empty())
      service_.unstore(one.name);  // no socket of our units: open_sockets says so
  }
}

void Daemon::open_metrics() {
  const std::string& listen = loaded_.settings.metrics.listen;
  if (listen.empty()) return;
  Result<std::unique_ptr<MetricsServer>> server =
      MetricsServer::start(listen, [this] { return render_metrics(metrics_); });
  if (server) {
    metrics_server_ = std::move(server).value();
  } else {
    // Without metrics the node still serves.
    warnings_.push_back("metrics are not served: " + server.error().message);
  }
}

int Daemon::run() {
  const sigset_t wanted = blocked_signals();
  const UniqueFd signals(::signalfd(-1, &wanted, SFD_CLOEXEC | SFD_NONBLOCK));
  if (!signals) {
    log::error("cannot receive signals: {}", std::strerror(errno));
    stop();
    return 1;
  }
  const int signal = wait_for_end(signals.get());
  if (signal == 0) {
    log::error(
        "a device worker ended by itself; stopping, so that the service manager starts a new "
        "daemon");
    leave_devices();
  }
  log::info("{}: stopping", signal == SIGINT ? "SIGINT" : "SIGTERM");
  drain(signals.get());
  stop();
  log::info("stopped");
  return 0;
}

// The worker has told its clients, the rest hear it from their sockets. What a lost GPU holds is
// the driver's to take back when the process ends: giving it back here may wait for ever, for a
// kernel on another GPU that nobody ends now.
void Daemon::leave_devices() {
  log::info("stopped");
  log::stop();
  std::_Exit(kFailure);
}

int Daemon::wait_for_end(int signals) {
  using Clock = std::chrono::steady_clock;
  const std::chrono::milliseconds beat =
      service_.watchdog_interval() ? std::min<std::chrono::milliseconds>(
                                         std::chrono::duration_cast<std::chrono::milliseconds>(
                                             *service_.watchdog_interval()) /
                                             2,
                                         kCalmWatch)
                                   : std::chrono::milliseconds(kCalmWatch);
  auto next_beat = Clock::now();
  for (;;) {
    if (Clock::now() >= next_beat) {
      look_for_stalls();
      next_beat = Clock::now() + beat;
    }
    pollfd waiting[] = {{signals, POLLIN, 0}, {worker_ended_.get(), POLLIN, 0}};
    const auto left =
        std::chrono::ceil<std::chrono::milliseconds>(next_beat - Clock::now()).count();
    ::poll(waiting, 2, static_cast<int>(std::max<std::int64_t>(left, 0)));
    if (waiting[1].revents != 0) return 0;
    if (waiting[0].revents == 0) continue;
    const int signal = read_signal(signals);
    if (signal == SIGTERM || signal == SIGINT) return signal;
    if (signal == SIGHUP) (void)reload().ok();  // it has said what went wrong
    if (signal == SIGUSR1) dump_recorders();
  }
}

void Daemon::look_for_stalls() {
  Settings::Watchdog watchdog;
  {
    std::lock_guard lock(mutex_);
    watchdog = loaded_.settings.watchdog;
  }
  const std::string stuck = watch_.find_stuck(std::chrono::steady_clock::now(),
                                              std::chrono::milliseconds(watchdog.stall_ms));
  if (stuck != stuck_) {
    if (stuck.empty()) {
      log::info("{} moves again", stuck_);
    } else {
      log::error("{} has stood still for more than {} ms{}", stuck, watchdog.stall_ms,
                 watchdog.enabled ? ": no more watchdog pings" : "");
    }
    stuck_ = stuck;
  }
  if (watchdog.enabled && stuck.empty() && service_.watchdog_interval()) service_.ping_watchdog();
}

void Daemon::dump_recorders() {
  std::string folder;
  {
    std::lock_guard lock(mutex_);
    folder = loaded_.settings.state_dir;
  }
  for (const Served& one : served_) {
    const Result<std::string> path = one.recorder->dump_to(folder);
    if (path) {
      log::info("flight recorder of {} written to {}", one.devices.name, *path);
    } else {
      log::error("flight recorder of {} not written: {}", one.devices.name, path.error().message);
    }
  }
}

// Lets operations in flight end. A second SIGTERM or SIGINT cuts it short.
void Daemon::drain(int signals) {
  std::chrono::milliseconds limit{};
  {
    std::lock_guard lock(mutex_);
    limit = std::chrono::milliseconds(loaded_.settings.shutdown.drain_timeout_ms);
  }
  service_.stopping("draining for at most " + std::to_string(limit.count()) + " ms");
  service_.extend_timeout(limit + std::chrono::seconds(5));
  stopping_ = true;
  control_->begin_shutdown();
  struct Drained {
    std::atomic<std::size_t> missing;
    UniqueFd done{::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)};
  };
  auto drained = std::make_shared<Drained>();
  drained->missing = served_.size();
  for (const Served& one : served_) {
    one.worker->drain(limit, [drained](const Status&) {
      if (drained->missing.fetch_sub(1) != 1) return;
      const std::uint64_t once = 1;
      (void)!::write(drained->done.get(), &once, sizeof(once));
    });
  }
  // The workers keep the deadline themselves; the margin is for one that is stuck.
  const auto end = std::chrono::steady_clock::now() + limit + std::chrono::seconds(1);
  for (;;) {
    const auto left =
        std::chrono::ceil<std::chrono::milliseconds>(end - std::chrono::steady_clock::now())
            .count();
    if (left <= 0) return log::warn("drain timed out");
    pollfd waiting[] = {{signals, POLLIN, 0}, {drained->done.get(), POLLIN, 0}};
    ::poll(waiting, 2, static_cast<int>(left));
    if (waiting[1].revents != 0) return;
    if (waiting[0].revents == 0) continue;
    const int signal = read_signal(signals);
    if (signal == SIGTERM || signal == SIGINT) return log::warn("second signal: stopping at once");
  }
}

void Daemon::stop_serving() {
  stopping_ = true;
  metrics_server_.reset();
  if (control_) control_->stop();
  for (Served& one : served_) {
    if (one.worker) one.worker->stop();
  }
  for (Served& one : served_) {
    if (one.thread.joinable()) one.thread.join();
  }
  control_.reset();  // after the workers' last answers
}

void Daemon::stop() {
  stop_serving();
  served_.clear();
  backend_.reset();
}

Device& Daemon::host_device() const {
  return *served_.back().devices.devices.front();  // the host's worker comes last
}

Daemon::~Daemon() {
  stop();
}

}  // namespace arcomm
