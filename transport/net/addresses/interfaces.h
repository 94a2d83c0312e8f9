// The network interfaces of this machine, as the kernel lists them now. A value; any thread.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "proto/status.h"

namespace arcomm::net {

// One address of an interface: one that has several is there several times, one that has none once.
struct Interface {
  std::string name;               // "eth0"
  std::string host;               // "10.0.0.2", "fe80::1%eth0", or ""
  unsigned prefix_bits = 0;       // of `host` that name its network
  bool is_up = false;             // by whoever administers it
  bool is_running = false;        // there is a carrier
  bool is_loopback = false;       // it leads to this machine alone
  std::uint32_t speed_mbits = 0;  // of the wire; 0: the kernel does not know
};

// `sys` stands for /sys, for tests. Unavailable with errno.
Result<std::vector<Interface>> interfaces_of_machine(const std::string& sys = "/sys");

}  // namespace arcomm::net
