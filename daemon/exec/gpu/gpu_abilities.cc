// What the plane's GPUs can do together: tried at the start, and looked up for each communicator.
#include <utility>

#include "daemon/exec/clock.h"
#include "daemon/exec/gpu/gpu_plane.h"
#include "daemon/telemetry/log/log.h"
#include "transport/device/device.h"

namespace arcomm {
namespace {

// Some milliseconds where nothing is wrong.
constexpr auto kLinesTimeout = std::chrono::milliseconds(500);
constexpr std::uint64_t kAllLinesNs = 10'000'000'000;

}  // namespace

void GpuPlane::try_lines() {
  const std::size_t gpus = gpus_.size();
  atomic_128b_stores_.assign(gpus * gpus, true);
  if (gpus < 2) return;
  const std::uint64_t begin = now_ns();
  std::size_t whole = 0;
  for (std::size_t reader = 0; reader < gpus; ++reader) {
    Memory memory;
    for (std::size_t writer = 0; writer < gpus; ++writer) {
      if (writer == reader) continue;
      Status tried = error(ErrorCode::DeadlineExceeded, Reason::Timeout,
                           "not tried, as the pairs before took too long");
      if (now_ns() < begin + kAllLinesNs) tried = try_lines(gpus_[writer], gpus_[reader], memory);
      atomic_128b_stores_[writer * gpus + reader] = tried.ok();
      if (tried) {
        ++whole;
        continue;
      }
      log::warn(
          "stores of 128 bytes from {} to {} are not known to arrive whole, and communicators over "
          "both do without: {}",
          gpus_[writer].device->name(), gpus_[reader].device->name(), tried.error().message);
    }
  }
  log::info(
      "stores of 128 bytes arrive whole between {} of {} ordered pairs of GPUs (tried in {} ms)",
      whole, gpus * (gpus - 1), (now_ns() - begin) / 1'000'000);
}

Status GpuPlane::try_lines(const Gpu& writer, const Gpu& reader, Memory& memory) {
  if (!memory) {
    Result<Memory> made = reader.device->allocate(kLl128TestBytes);
    if (!made) return std::move(made).error();
    memory = std::move(made).value();
  }
  Status tried = writer.hardware.launcher->try_atomic_128b_stores(reader.device->ordinal(),
                                                                  memory.data(), kLinesTimeout);
  // What did not end in time may still use it.
  if (!tried) release_later(std::exchange(memory, {}));
  return tried;
}

CudaAbilities GpuPlane::abilities_of(const GpuGroup& group) const {
  CudaAbilities abilities{.atomic_128b_stores = true};
  for (const GpuMember& writer : group.members) {
    for (const GpuMember& reader : group.members)
      abilities.atomic_128b_stores &= atomic_128b_stores_[writer.gpu * gpus_.size() + reader.gpu];
  }
  return abilities;
}

}  // namespace arcomm
