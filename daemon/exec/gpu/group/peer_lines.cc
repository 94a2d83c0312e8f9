#include "daemon/exec/gpu/group/peer_lines.h"

#include <chrono>
#include <utility>

#include "daemon/exec/clock.h"
#include "daemon/telemetry/log/log.h"

namespace arcomm {
namespace {

// Some milliseconds where nothing is wrong.
constexpr auto kPairTimeout = std::chrono::milliseconds(500);
constexpr std::uint64_t kAllPairsNs = 10'000'000'000;

// `memory` is the reader's; taken when it is first needed.
Status try_pair(const GpuEngine& writer, const GpuEngine& reader, Memory& memory,
                DeferredRelease& deferred) {
  if (!memory) {
    Result<Memory> made = reader.device().allocate(kLl128TestBytes);
    if (!made) return std::move(made).error();
    memory = std::move(made).value();
  }
  Status tried =
      writer.launcher().try_atomic_128b_stores(reader.ordinal(), memory.data(), kPairTimeout);
  // What did not end in time may still use it.
  if (!tried) deferred.add(std::exchange(memory, {}));
  return tried;
}

}  // namespace

PeerLines::PeerLines(const std::vector<GpuEngine>& engines, DeferredRelease& deferred)
    : engines_(engines), whole_(engines.size() * engines.size(), true) {
  const std::size_t gpus = engines.size();
  if (gpus < 2) return;
  const std::uint64_t begin = now_ns();
  std::size_t count = 0;
  for (const GpuEngine& reader : engines) {
    Memory memory;
    for (const GpuEngine& writer : engines) {
      if (&writer == &reader) continue;
      Status tried = error(ErrorCode::DeadlineExceeded, Reason::Timeout,
                           "not tried, as the pairs before took too long");
      if (now_ns() < begin + kAllPairsNs) tried = try_pair(writer, reader, memory, deferred);
      whole_[place(writer, reader)] = tried.ok();
      if (tried) {
        ++count;
        continue;
      }
      log::warn(
          "stores of 128 bytes from {} to {} are not known to arrive whole, and communicators over "
          "both do without: {}",
          writer.name(), reader.name(), tried.error().message);
    }
  }
  log::info(
      "stores of 128 bytes arrive whole between {} of {} ordered pairs of GPUs (tried in {} ms)",
      count, gpus * (gpus - 1), (now_ns() - begin) / 1'000'000);
}

}  // namespace arcomm
