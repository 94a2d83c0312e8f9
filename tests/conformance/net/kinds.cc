#include "tests/conformance/net/kinds.h"

#include <netinet/in.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstring>
#include <optional>
#include <thread>

#include "proto/unique_fd.h"
#include "tests/conformance/net/frame_relay.h"
#include "transport/net/loopback/endpoint.h"
#include "transport/net/loopback/network.h"
#include "transport/net/tcp/endpoint.h"

namespace arcomm::net {
namespace {

class TcpUnderTest final : public NetUnderTest {
 public:
  explicit TcpUnderTest(bool is_v6) : is_v6_(is_v6) {}
  // Containers often have no IPv6 at all.
  std::string missing() const override {
    if (!is_v6_) return {};
    const UniqueFd socket(::socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_in6 here{};
    here.sin6_family = AF_INET6;
    here.sin6_addr = in6addr_loopback;
    if (socket &&
        ::bind(socket.get(), reinterpret_cast<const sockaddr*>(&here), sizeof(here)) == 0) {
      return {};
    }
    const int why = errno;
    if (why != EADDRNOTAVAIL && why != EAFNOSUPPORT) return {};  // no lack of it: let the test tell
    return std::string("there is no ::1 on this machine: ") + std::strerror(why);
  }
  Result<std::unique_ptr<Endpoint>> open(int host, EndpointOptions options) override {
    options.address = {host_name(host), 0};
    return TcpEndpoint::open(options);
  }
  Address nobody(int host) override { return {host_name(host), 1}; }
  Address tampered_way_to(const Address& peer) override {
    return relay_.emplace(host_name(0), peer).address();
  }
  void tamper_next(Tampering how) override { relay_->tamper_next(how); }
  void step() override {
    if (relay_) relay_->step();
    std::this_thread::yield();
  }

 private:
  // All of 127/8 is this machine, of IPv6 one address.
  std::string host_name(int host) const {
    return is_v6_ ? "::1" : "127.0.0." + std::to_string(host + 1);
  }
  bool is_v6_;
  std::optional<FrameRelay> relay_;
};

class LoopbackUnderTest final : public NetUnderTest {
 public:
  explicit LoopbackUnderTest(LoopbackNetwork::Weather weather) : network_(1) {
    network_.set_weather(weather);
  }
  Result<std::unique_ptr<Endpoint>> open(int host, EndpointOptions options) override {
    options.address = {host_name(host), 0};
    return LoopbackEndpoint::open(network_, options);
  }
  Address nobody(int host) override { return {host_name(host), 1}; }
  Address tampered_way_to(const Address& peer) override { return peer; }
  void tamper_next(Tampering how) override {
    how == Tampering::Repeats ? network_.repeat_next(host_name(0), host_name(1))
                              : network_.lose_next(host_name(0), host_name(1));
  }
  void step() override { network_.advance(std::chrono::microseconds(5)); }

 private:
  static std::string host_name(int host) { return "10.0.0." + std::to_string(host + 1); }
  LoopbackNetwork network_;
};

}  // namespace

std::vector<NetKind> all_net_kinds() {
  using std::chrono::microseconds;
  return {
      {"Tcp", [] { return std::make_unique<TcpUnderTest>(false); }, false, true},
      {"TcpOverIPv6", [] { return std::make_unique<TcpUnderTest>(true); }, false, true},
      {"TcpWithoutCopies", [] { return std::make_unique<TcpUnderTest>(false); }, true, true},
      {"Loopback", [] { return std::make_unique<LoopbackUnderTest>(LoopbackNetwork::Weather{}); }},
      {"LoopbackFarAway", [] {
         return std::make_unique<LoopbackUnderTest>(
             LoopbackNetwork::Weather{.least_delay = microseconds(50),
                                      .most_delay = microseconds(5000),
                                      .bytes_per_second = 100e6});
       }}};
}

}  // namespace arcomm::net
