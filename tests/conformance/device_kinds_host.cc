#include "tests/conformance/device_kinds.h"
#include "transport/device/host/host_device.h"

namespace arcomm {
namespace {

DeviceUnderTest host(std::string name, HostDeviceOptions options) {
  return {std::move(name), [options] { return HostDevice::create(options); }};
}

}  // namespace

std::vector<DeviceUnderTest> all_device_kinds() {
  return {host("HostSpinning", {.spin = std::chrono::microseconds(50)}),
          host("HostSleeping", {.spin = std::chrono::nanoseconds(0)}),
          host("HostWithFewSlots", {.stream_slots = 4, .spin = std::chrono::microseconds(5)})};
}

}  // namespace arcomm
