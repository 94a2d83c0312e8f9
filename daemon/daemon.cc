#include "daemon/daemon.h"

#include <poll.h>
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
    : service_(ServiceManager::from_environment()),
      in_force_(std::move(loaded)),
      actions_({.request = std::move(request),
                .in_force = in_force_,
                .service = service_,
                .metrics = metrics_,
                .backend = backend_,
                .workers = workers_,
                .kept_recorders = kept_recorders_,
                .use_settings =
                    [this](const std::shared_ptr<const Settings>& settings) {
                      control_->use_settings(settings);
                      workers_.use_settings(settings);
                    },
                .use_tuning =
                    [this](const std::shared_ptr<const TuningTable>& tuning) {
                      control_->use_tuning(tuning);
                      workers_.use_tuning(tuning);
                    },
                .control = {.survey_links =
                                [this](const std::vector<std::string>& wanted,
                                       const LinkSurvey::Progress& progress,
                                       const std::function<bool()>& cancelled) {
                                  return control_->survey_links(wanted, progress, cancelled);
                                },
                            .use_network_tuning =
                                [this](const std::shared_ptr<const NetworkTuning>& tuning) {
                                  control_->use_network_tuning(tuning);
                                }}}) {}

Result<std::unique_ptr<Daemon>> Daemon::start(LoadRequest request, Loaded loaded) {
  std::unique_ptr<Daemon> daemon(new Daemon(std::move(request), std::move(loaded)));
  if (Status opened = daemon->open(); !opened) {
    daemon->stop();
    return opened.error();
  }
  return daemon;
}

Status Daemon::open() {
  const std::shared_ptr<const Settings> settings = in_force_.settings();
  raise_descriptor_limit();
  Result<InstanceLock> lock = InstanceLock::take(settings->runtime_dir);
  if (!lock) return lock.error();
  lock_ = std::make_unique<InstanceLock>(std::move(lock).value());
  if (const Status own = own_folder(settings->state_dir, 0750); !own)
    in_force_.warn(own.error().message);
  if (::access(settings->state_dir.c_str(), W_OK) != 0) {
    in_force_.warn("state_dir " + settings->state_dir + " cannot be written (" +
                   std::strerror(errno) + "): tuning and flight-recorder dumps will not be saved");
  }
  in_force_.load_tables();
  Result<std::vector<InheritedSocket>> passed = inherited_sockets();
  if (!passed) return passed.error();
  kept_recorders_.take_previous(*passed);
  kept_rings_.end_previous(*passed);
  unstore_strangers(*passed);

  Result<std::unique_ptr<ControlPlane>> control = ControlPlane::create(
      {.metrics = metrics_, .settings = settings, .kept_rings = kept_rings_, .actions = actions_});
  if (!control) return control.error();
  control_ = std::move(control).value();
  control_->use_network_tuning(in_force_.network_tuning());
  control_->use_tuning(in_force_.tuning());
  ARC_RETURN_IF_ERROR(open_workers());
  std::vector<std::string> warnings;
  Result<std::vector<ListeningSocket>> sockets = open_sockets(
      *settings, AccessGroups::look_up(settings->access), std::move(*passed), warnings);
  if (!sockets) return sockets.error();
  for (std::string& warning : warnings) in_force_.warn(std::move(warning));
  open_metrics();
  ARC_RETURN_IF_ERROR(control_->serve(workers_.refs(), std::move(sockets).value()));
  watch_.add(
      "the control loop", [this] { return control_->turns(); }, [this] { control_->nudge(); },
      std::chrono::steady_clock::now());
  watch_.add(
      "the control plane's gRPC server", [this] { return control_->rpc_beats(); },
      [this] { control_->nudge_rpc(); }, std::chrono::steady_clock::now());

  // Only now: what the dead daemon left stays there for as long as its successor does not serve.
  for (std::size_t i = 0; i < workers_.all().size(); ++i)
    kept_recorders_.keep(i, *workers_.all()[i].recorder);
  for (const std::string& warning : in_force_.warnings()) log::warn("{}", warning);
  const std::string& name = workers_.first().devices.name;
  log::info("ready: {} in {}, tuning {}", name, settings->runtime_dir, in_force_.tuning()->source);
  service_.ready("serving " + name + " in " + settings->runtime_dir);
  return {};
}

Status Daemon::open_workers() {
  const std::shared_ptr<const Settings> settings = in_force_.settings();
  Result<NodeBackend> backend = open_backend(*settings);
  if (!backend) return backend.error();
  backend_ = std::move(backend).value();
  for (const std::string& note : backend_.notes) log::info("{}", note);
  for (const std::string& warning : backend_.warnings) in_force_.warn(warning);
  ARC_RETURN_IF_ERROR(
      workers_.open(std::exchange(backend_.workers, {}),
                    {.settings = settings,
                     .tuning = in_force_.tuning(),
                     .metrics = metrics_,
                     .events = [this](std::size_t worker) { return control_->events(worker); }}));
  workers_.add_to(watch_);
  return {};
}

void Daemon::unstore_strangers(const std::vector<InheritedSocket>& passed) {
  for (const InheritedSocket& one : passed) {
    if (one.path.empty())
      service_.unstore(one.name);  // no socket of our units: open_sockets says so
  }
}

void Daemon::open_metrics() {
  const std::string listen = in_force_.settings()->metrics.listen;
  if (listen.empty()) return;
  Result<std::unique_ptr<MetricsServer>> server =
      MetricsServer::start(listen, [this] { return render_metrics(metrics_); });
  if (server) {
    metrics_server_ = std::move(server).value();
  } else {
    // Without metrics the node still serves.
    in_force_.warn("metrics are not served: " + server.error().message);
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
    pollfd waiting[] = {{signals, POLLIN, 0}, {workers_.ended(), POLLIN, 0}};
    const auto left =
        std::chrono::ceil<std::chrono::milliseconds>(next_beat - Clock::now()).count();
    ::poll(waiting, 2, static_cast<int>(std::max<std::int64_t>(left, 0)));
    if (waiting[1].revents != 0) return 0;
    if (waiting[0].revents == 0) continue;
    const int signal = read_signal(signals);
    if (signal == SIGTERM || signal == SIGINT) return signal;
    if (signal == SIGHUP) (void)actions_.reload().ok();  // it has said what went wrong
    if (signal == SIGUSR1) workers_.dump_recorders(in_force_.settings()->state_dir);
  }
}

void Daemon::look_for_stalls() {
  const Settings::Watchdog watchdog = in_force_.settings()->watchdog;
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

// Lets operations in flight end. A second SIGTERM or SIGINT cuts it short.
void Daemon::drain(int signals) {
  const std::chrono::milliseconds limit(in_force_.settings()->shutdown.drain_timeout_ms);
  service_.stopping("draining for at most " + std::to_string(limit.count()) + " ms");
  service_.extend_timeout(limit + std::chrono::seconds(5));
  actions_.begin_shutdown();
  control_->begin_shutdown();
  const auto drained = std::make_shared<UniqueFd>(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  workers_.drain(limit, [drained] {
    const std::uint64_t once = 1;
    (void)!::write(drained->get(), &once, sizeof(once));
  });
  // The workers keep the deadline themselves; the margin is for one that is stuck.
  const auto end = std::chrono::steady_clock::now() + limit + std::chrono::seconds(1);
  for (;;) {
    const auto left =
        std::chrono::ceil<std::chrono::milliseconds>(end - std::chrono::steady_clock::now())
            .count();
    if (left <= 0) return log::warn("drain timed out");
    pollfd waiting[] = {{signals, POLLIN, 0}, {drained->get(), POLLIN, 0}};
    ::poll(waiting, 2, static_cast<int>(left));
    if (waiting[1].revents != 0) return;
    if (waiting[0].revents == 0) continue;
    const int signal = read_signal(signals);
    if (signal == SIGTERM || signal == SIGINT) return log::warn("second signal: stopping at once");
  }
}

void Daemon::stop() {
  actions_.begin_shutdown();
  metrics_server_.reset();
  if (control_) control_->stop();
  workers_.stop();
  control_.reset();  // after the workers' last answers
  workers_.close();
  backend_ = {};
}

Daemon::~Daemon() {
  stop();
}

}  // namespace arcomm
