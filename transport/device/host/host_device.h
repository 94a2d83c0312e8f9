// The CPU as a device: streams are threads, device memory is a sealed memfd, events are words.
// Thread: any. An idle stream sleeps; a busy one spins briefly between tasks.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "transport/device/device.h"
#include "transport/device/event.h"
#include "transport/device/stream.h"

namespace arcomm {

struct HostDeviceOptions {
  int ordinal = 0;
  std::uint32_t stream_slots = 256;  // tasks a stream holds; a power of two
  // How long an idle stream looks for work before it sleeps. Zero where there are fewer cores than
  // threads.
  std::chrono::nanoseconds spin = std::chrono::microseconds(20);
};

class HostDevice final : public Device {
 public:
  static Result<std::unique_ptr<HostDevice>> create(HostDeviceOptions options);

  DeviceKind kind() const override { return DeviceKind::Host; }
  int ordinal() const override { return options_.ordinal; }
  std::string name() const override;
  Result<Memory> allocate(std::uint64_t bytes) override;
  // Unimplemented: a stranger's memfd is mapped by transport/peer, which knows what to check.
  Status import(const MemoryHandle& handle, int descriptor, Memory& memory) override;
  Status import_chunks(std::span<const MemoryChunk> chunks, std::uint64_t offset_bytes,
                       std::uint64_t length_bytes, Memory& memory) override;  // Unimplemented
  // `name`: what a debugger shows, at most 15 characters are kept.
  Result<Stream> create_stream(std::string_view name);
  Result<Event> create_event();

 private:
  explicit HostDevice(HostDeviceOptions options) : options_(options) {}

  HostDeviceOptions options_;
};

}  // namespace arcomm
