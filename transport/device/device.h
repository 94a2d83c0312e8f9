// One accelerator, or the CPU in its place: where memory comes from. The seam behind which the
// kinds of hardware live. Queues are not behind it: a GPU's are kernels'
// (kernels/launch/cuda_queue.h), the host's its device's (host_device.h). Thread: any; creating is
// slow and not for the hot path. Owner: the daemon, which destroys the Device last.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "proto/memory_handle.h"
#include "proto/status.h"
#include "transport/device/memory.h"

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
  virtual std::string name() const = 0;                     // for people: "host0"
  virtual std::uint64_t memory_bytes() const { return 0; }  // that it has in all; 0: not known

  // Zeroed, present (no access faults later) and exportable. Rounded up to whole pages: see
  // Memory::bytes. Unavailable where the device is too busy to clear it within 40 ms.
  virtual Result<Memory> allocate(std::uint64_t bytes) = 0;
  // The same for one who is charged for it: `token` goes behind the memory (Memory::keep), also
  // where that is kept until it is cleared, and not given.
  virtual Result<Memory> allocate_for(const std::shared_ptr<const void>& token,
                                      std::uint64_t bytes) {
    Result<Memory> memory = allocate(bytes);
    if (memory) memory->keep(token);
    return memory;
  }
  // What could not be cleared in time, is now, and nobody has asked for again for a second. Where
  // its room is needed, what nobody but the device has the token of any more, or, if it has none,
  // what nobody has asked for again for as long as who waits lets pass between two tries. It goes
  // when other memory may.
  virtual std::vector<Memory> take_abandoned([[maybe_unused]] bool is_needed) { return {}; }
  // Whether something is left of what could not be cleared in time.
  virtual bool keeps_uncleared() const { return false; }
  // The same, with addresses kept free behind it for Memory::grow() up to `most_bytes` in all; they
  // take no memory. GPUs only.
  virtual Result<Memory> allocate_growing(std::uint64_t bytes, std::uint64_t most_bytes) {
    return error(ErrorCode::Unimplemented, Reason::Unsupported, "memory of ", name(),
                 " does not grow: ", bytes, " bytes to ", most_bytes);
  }
  // Whether a kernel by which memory is cleared has not ended: beside other work that fills the
  // device it waits for that, and whoever lets go of memory would wait as long.
  virtual bool is_clearing() const { return false; }
  // Memory of this device that another process made; the view is the buffer's range, and every GPU
  // that reaches this device reaches it, at Memory::data_on. `descriptor`: of a PosixFd or HostShm
  // handle, and stays the caller's. Trusts nothing: a range outside the allocation is OutOfRange,
  // an allocation smaller than its maker says or of another device InvalidArgument. After an error
  // `memory` owns what had been mapped by then, if anything: it goes when other memory may. Slow;
  // on a GPU not while a kernel of ours is resident there.
  virtual Status import(const MemoryHandle& handle, int descriptor, Memory& memory) = 0;
  // The same of memory whose pieces lie behind one another, in this order; the descriptors in them
  // stay the caller's. The range counts in their sum.
  virtual Status import_chunks(std::span<const MemoryChunk> chunks, std::uint64_t offset_bytes,
                               std::uint64_t length_bytes, Memory& memory) = 0;
};

}  // namespace arcomm
