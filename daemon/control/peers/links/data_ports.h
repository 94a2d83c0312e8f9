// The data endpoints of this daemon, one on each chosen interface: where other daemons' data
// connections arrive, and where its own leave from. Thread: the control loop.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "daemon/control/rpc/event_loop.h"
#include "transport/net/addresses/interface_choice.h"
#include "transport/net/endpoint.h"
#include "transport/net/regions.h"

namespace arcomm {

class DataPorts {
 public:
  struct Parts {
    EventLoop& loop;
    std::uint16_t port = 0;
    std::chrono::milliseconds peer_timeout;
    net::CheckKey check_key;
    std::function<void(net::ConnectionPtr)> accepted;  // right after its check_key
  };
  explicit DataPorts(Parts parts) : parts_(std::move(parts)) {}
  ~DataPorts() { close(); }

  // One on each that is chosen. An interface on which it cannot be opened counts as not chosen and
  // says so; an error where none is left.
  Status open(std::vector<net::InterfaceChoice> choices);
  void close();
  // Somebody is expected.
  void look() {
    if (is_open()) somebody_comes();
  }

  bool is_open() const { return !endpoints_.empty(); }
  const std::vector<net::InterfaceChoice>& choices() const { return choices_; }
  // In one order, of the same length.
  const std::vector<net::Interface>& interfaces() const { return interfaces_; }
  net::Endpoint& endpoint(std::size_t index) { return *endpoints_[index]; }
  // What peers put into, whichever interface they come over.
  const std::shared_ptr<net::Regions>& regions() const { return regions_; }
  std::uint64_t refused() const;

 private:
  using Clock = EventLoop::Clock;
  void somebody_comes();
  void accept_all();

  Parts parts_;
  std::shared_ptr<net::Regions> regions_ = std::make_shared<net::Regions>();
  std::vector<net::InterfaceChoice> choices_;
  std::vector<net::Interface> interfaces_;
  std::vector<std::unique_ptr<net::Endpoint>> endpoints_;
  Clock::time_point look_until_{};  // whoever has come by now has spoken, or is turned away
  bool is_looking_ = false;
};

}  // namespace arcomm
