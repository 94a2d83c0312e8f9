#include "daemon/telemetry/metrics/metrics_server.h"

#include <poll.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <deque>
#include <vector>

#include "daemon/telemetry/metrics/http_exchange.h"
#include "daemon/telemetry/metrics/listen_socket.h"

namespace arcomm {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::size_t kMostConnections = 8;
constexpr std::chrono::seconds kConnectionTime{2};
constexpr std::chrono::milliseconds kPauseWithoutDescriptors{100};

int poll_timeout_ms(const std::deque<HttpExchange>& exchanges) {
  if (exchanges.empty()) return -1;
  // They are in the order of their deadlines.
  const auto left =
      std::chrono::ceil<std::chrono::milliseconds>(exchanges.front().deadline() - Clock::now());
  return static_cast<int>(std::max<std::chrono::milliseconds::rep>(left.count(), 0));
}

}  // namespace

Result<std::unique_ptr<MetricsServer>> MetricsServer::start(const std::string& listen,
                                                            std::function<std::string()> render) {
  auto socket = open_listen_socket(listen);
  if (!socket) return std::move(socket).error();
  UniqueFd wake(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!wake) {
    return error(ErrorCode::ResourceExhausted, Reason::OutOfMemory,
                 "metrics: no descriptor left for the server: ", std::strerror(errno));
  }
  return std::unique_ptr<MetricsServer>(
      new MetricsServer(std::move(socket->fd), std::move(wake), std::move(socket->address),
                        std::move(socket->unlink_path), std::move(render)));
}

MetricsServer::MetricsServer(UniqueFd listener, UniqueFd wake, std::string address,
                             std::string unlink_path, std::function<std::string()> render)
    : listener_(std::move(listener)),
      wake_(std::move(wake)),
      address_(std::move(address)),
      unlink_path_(std::move(unlink_path)),
      render_(std::move(render)) {
  sigset_t all, before;  // signals are for the main thread
  ::sigfillset(&all);
  ::pthread_sigmask(SIG_SETMASK, &all, &before);
  thread_ = std::thread([this] { run(); });
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

MetricsServer::~MetricsServer() {
  ::eventfd_write(wake_.get(), 1);
  thread_.join();
  if (!unlink_path_.empty()) ::unlink(unlink_path_.c_str());
}

void MetricsServer::run() {
  std::deque<HttpExchange> exchanges;  // oldest first
  std::vector<pollfd> waiting;
  for (;;) {
    waiting.assign({{.fd = wake_.get(), .events = POLLIN, .revents = 0},
                    {.fd = listener_.get(), .events = POLLIN, .revents = 0}});
    for (const HttpExchange& exchange : exchanges)
      waiting.push_back({.fd = exchange.fd(), .events = exchange.wanted_events(), .revents = 0});
    if (::poll(waiting.data(), waiting.size(), poll_timeout_ms(exchanges)) < 0 && errno != EINTR) {
      ::poll(nullptr, 0, static_cast<int>(kPauseWithoutDescriptors.count()));
      continue;
    }
    if (waiting[0].revents != 0) return;

    const Clock::time_point now = Clock::now();
    std::deque<HttpExchange> open;
    for (std::size_t i = 0; i < exchanges.size(); ++i) {
      const bool is_ready = waiting[i + 2].revents != 0;
      if (is_ready && !exchanges[i].advance(render_)) continue;
      if (exchanges[i].deadline() <= now) continue;
      open.push_back(std::move(exchanges[i]));
    }
    exchanges = std::move(open);

    if (waiting[1].revents == 0) continue;
    UniqueFd client(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (!client) {
      // Out of descriptors the listener stays ready: do not spin on it.
      if (errno != EAGAIN && errno != ECONNABORTED && errno != EINTR)
        ::poll(nullptr, 0, static_cast<int>(kPauseWithoutDescriptors.count()));
      continue;
    }
    if (exchanges.size() >= kMostConnections) exchanges.pop_front();
    exchanges.emplace_back(std::move(client), now + kConnectionTime);
  }
}

}  // namespace arcomm
