// The daemon's side of systemd: state notifications, watchdog and inherited sockets. Without
// systemd every call does nothing. Protocols: sd_notify(3), sd_listen_fds(3). Thread:
// ServiceManager is a value with one datagram socket; send from any thread. inherited_sockets() is
// for main, before other threads exist.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "proto/status.h"
#include "proto/unique_fd.h"

namespace arcomm {

class ServiceManager {
 public:
  // Reads NOTIFY_SOCKET, WATCHDOG_USEC and WATCHDOG_PID.
  static ServiceManager from_environment();

  // What to do while systemd's queue is full: drop the message, or wait for a second at most.
  enum class Delivery : std::uint8_t { AtOnce, Patient };

  bool is_present() const { return socket_.get() >= 0; }
  // Each returns whether the message was handed over. ready() and ping_watchdog() are patient: the
  // service would be killed for the lack of them. A missing socket never blocks.
  bool ready(std::string_view status);
  bool reloading();  // with MONOTONIC_USEC; followed by ready() when done, whatever came of it
  bool stopping(std::string_view status);
  bool status(std::string_view text);
  bool extend_timeout(std::chrono::microseconds by);
  bool ping_watchdog();
  // Leaves a copy of the descriptor with systemd: the next process of this service finds it among
  // inherited_sockets(). Beyond the unit's FileDescriptorStoreMax= systemd drops it and says
  // nothing. A name may stand for several: unstore() first what is to be replaced.
  bool store(int fd, std::string_view name);
  // Drops all that bear the name; none is fine too.
  bool unstore(std::string_view name, Delivery delivery = Delivery::AtOnce);
  bool send(std::string_view message, Delivery delivery = Delivery::AtOnce);

  // How often systemd wants pings at most; ping at half of it. nullopt: it does not ask for any.
  std::optional<std::chrono::microseconds> watchdog_interval() const { return watchdog_; }

 private:
  bool send_with(std::string_view message, int fd, Delivery delivery);  // -1: no descriptor

  UniqueFd socket_;
  std::string address_;  // sun_path with its leading NUL, if abstract
  std::optional<std::chrono::microseconds> watchdog_;
};

// A listening socket that systemd opened for us, or a descriptor that an earlier process of this
// service left with ServiceManager::store().
struct InheritedSocket {
  UniqueFd fd;
  std::string name;  // FileDescriptorName= of the socket unit ("client"), or as it was stored
  std::string path;  // of a unix socket, else ""
};

// Takes over LISTEN_FDS, sets close-on-exec and removes the variables, so that children do not see
// them. Empty without socket activation; an error when the variables are ours and make no sense.
Result<std::vector<InheritedSocket>> inherited_sockets();

}  // namespace arcomm
