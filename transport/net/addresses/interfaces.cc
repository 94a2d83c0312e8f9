#include "transport/net/addresses/interfaces.h"

#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <iterator>
#include <memory>
#include <set>

#include "transport/net/tcp/socket.h"

namespace arcomm::net {
namespace {

struct FreeList {
  void operator()(ifaddrs* list) const { freeifaddrs(list); }
};

std::uint32_t speed_of(const std::string& sys, const std::string& name) {
  // "-1", or an error in reading it, is an interface that does not know.
  std::ifstream file(sys + "/class/net/" + name + "/speed");
  long mbits = 0;
  return file >> mbits && mbits > 0 ? static_cast<std::uint32_t>(mbits) : 0;
}

// "": none of IP's.
std::string host_of(const sockaddr* address) {
  const int family = address == nullptr ? AF_UNSPEC : address->sa_family;
  if (family != AF_INET && family != AF_INET6) return "";
  const socklen_t size = family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6);
  std::array<char, NI_MAXHOST> host{};
  const int failed =
      getnameinfo(address, size, host.data(), host.size(), nullptr, 0, NI_NUMERICHOST);
  return failed != 0 ? "" : host.data();
}

unsigned bits_set(const sockaddr* mask) {
  if (mask == nullptr) return 0;
  unsigned bits = 0;
  const auto count = [&bits](const void* from, std::size_t size) {
    std::array<std::uint8_t, 16> bytes{};
    std::memcpy(bytes.data(), from, size);
    for (const std::uint8_t byte : bytes) bits += static_cast<unsigned>(std::popcount(byte));
  };
  if (mask->sa_family == AF_INET6) {
    count(&reinterpret_cast<const sockaddr_in6*>(mask)->sin6_addr, sizeof(in6_addr));
  } else {
    count(&reinterpret_cast<const sockaddr_in*>(mask)->sin_addr, sizeof(in_addr));
  }
  return bits;
}

}  // namespace

Result<std::vector<Interface>> interfaces_of_machine(const std::string& sys) {
  ifaddrs* raw = nullptr;
  if (getifaddrs(&raw) != 0)
    return error(ErrorCode::Unavailable, Reason::None,
                 "cannot list the network interfaces: ", text_of_errno(errno));
  const std::unique_ptr<ifaddrs, FreeList> list(raw);
  std::vector<Interface> all;
  std::set<std::string> without_address;
  for (const ifaddrs* one = list.get(); one != nullptr; one = one->ifa_next) {
    const std::string host = host_of(one->ifa_addr);
    // Each interface comes first without an address, if it comes so at all.
    if (host.empty() && !without_address.insert(one->ifa_name).second) continue;
    all.push_back({.name = one->ifa_name,
                   .host = host,
                   .prefix_bits = host.empty() ? 0 : bits_set(one->ifa_netmask),
                   .is_up = (one->ifa_flags & IFF_UP) != 0,
                   .is_running = (one->ifa_flags & IFF_RUNNING) != 0,
                   .is_loopback = (one->ifa_flags & IFF_LOOPBACK) != 0,
                   .speed_mbits = speed_of(sys, one->ifa_name)});
  }
  const auto has_address = [&all](const Interface& one) {
    return std::ranges::any_of(all, [&one](const Interface& other) {
      return other.name == one.name && !other.host.empty();
    });
  };
  std::vector<Interface> listed;
  std::ranges::copy_if(all, std::back_inserter(listed), [&has_address](const Interface& one) {
    return !one.host.empty() || !has_address(one);
  });
  return listed;
}

}  // namespace arcomm::net
