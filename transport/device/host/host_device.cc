#include "transport/device/host/host_device.h"

#include <bit>

#include "transport/device/host/host_event.h"
#include "transport/device/host/host_memory.h"
#include "transport/device/host/host_stream.h"

namespace arcomm {

Result<std::unique_ptr<HostDevice>> HostDevice::create(HostDeviceOptions options) {
  if (!std::has_single_bit(options.stream_slots) || options.stream_slots > 65536) {
    return error(ErrorCode::InvalidArgument, Reason::BadValue, "a stream cannot have ",
                 options.stream_slots, " slots: take a power of two up to 65536");
  }
  return std::unique_ptr<HostDevice>(new HostDevice(options));
}

std::string HostDevice::name() const {
  return "host" + std::to_string(options_.ordinal);
}

Result<Memory> HostDevice::allocate(std::uint64_t bytes) {
  auto memory = HostMemory::create(bytes);
  if (!memory) return std::move(memory).error();
  return Memory(*std::move(memory));
}

Status HostDevice::import(const MemoryHandle&, int, Memory&) {
  return error(ErrorCode::Unimplemented, Reason::Unsupported,
               "host memory is mapped by its descriptor, not imported by a device");
}

Status HostDevice::import_chunks(std::span<const MemoryChunk>, std::uint64_t, std::uint64_t,
                                 Memory&) {
  return error(ErrorCode::Unimplemented, Reason::Unsupported,
               "host memory is registered whole, by one descriptor, not in pieces");
}

Result<Stream> HostDevice::create_stream(std::string_view name) {
  auto stream = HostStream::create(name, options_.stream_slots, options_.spin);
  if (!stream) return std::move(stream).error();
  return Stream(*std::move(stream));
}

Result<Event> HostDevice::create_event() {
  return Event(std::make_unique<HostEvent>());
}

}  // namespace arcomm
