// The shapes of the host's device that the conformance suite runs over. A new one adds one line to
// all_device_kinds().
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "transport/device/host/host_device.h"

namespace arcomm {

struct DeviceUnderTest {
  std::string name;
  std::function<Result<std::unique_ptr<HostDevice>>()> create;
};

std::vector<DeviceUnderTest> all_device_kinds();

}  // namespace arcomm
