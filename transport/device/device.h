// One accelerator, or the CPU in its place: where memory, streams and events come from. The seam
// behind which the kinds of hardware live; nothing above it names one. Thread: any; creating is
// slow and not for the hot path. Owner: the daemon, which destroys the Device last.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "proto/status.h"
#include "transport/device/event.h"
#include "transport/device/memory.h"
#include "transport/device/stream.h"

namespace arcomm {

enum class DeviceKind : std::uint8_t { Host, Cuda };

constexpr std::string_view name_of(DeviceKind kind) {
  switch (kind) {
    case DeviceKind::Host:
      return "host";
    case DeviceKind::Cuda:
      return "cuda";
  }
  return "unknown kind";
}

class Device {
 public:
  virtual ~Device() = default;

  virtual DeviceKind kind() const = 0;
  virtual int ordinal() const = 0;
  virtual std::string name() const = 0;  // for people: "host0"

  // Zeroed, present (no access faults later) and exportable. Rounded up to whole pages: see
  // Memory::bytes.
  virtual Result<Memory> allocate(std::uint64_t bytes) = 0;
  // `name`: what a debugger shows, at most 15 characters are kept.
  virtual Result<Stream> create_stream(std::string_view name) = 0;
  virtual Result<Event> create_event() = 0;
};

}  // namespace arcomm
