// Who makes a control call, and how it is answered. Values; any thread.
#pragma once

#include <cstdint>
#include <functional>

#include "daemon/exec/worker/device_worker.h"
#include "proto/status.h"

namespace arcomm {

using ConnectionNumber = std::uint64_t;  // of an accepted connection; never reused, 0 is none

enum class SocketKind : std::uint8_t { Client, Admin, Descriptor };

struct Caller {
  ConnectionNumber connection = 0;
  SocketKind kind = SocketKind::Client;
  PeerCredentials peer;
  std::uint64_t call = 0;  // tells this call from every other of the same server; 0 is none
  // Until when an answer reaches it (daemon/exec/clock.h); 0: it waits without an end.
  std::uint64_t waits_until_ns = 0;
};

// May be called from any thread and more than once: the first answer counts, later ones are
// dropped.
template <typename T>
using Answer = std::function<void(Result<T>)>;

}  // namespace arcomm
