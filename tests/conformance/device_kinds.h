// The kinds of device that the conformance suite runs over. A new kind adds one line to
// all_device_kinds().
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "transport/device/device.h"

namespace arcomm {

struct DeviceUnderTest {
  std::string name;
  std::function<Result<std::unique_ptr<Device>>()> create;
};

std::vector<DeviceUnderTest> all_device_kinds();

}  // namespace arcomm
