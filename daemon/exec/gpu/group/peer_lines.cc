#include "daemon/exec/gpu/group/peer_lines.h"

#include <chrono>
#include <span>
#include <utility>
#include <vector>

#include "daemon/exec/clock.h"
#include "daemon/telemetry/log/log.h"

namespace arcomm {
namespace {

// Some milliseconds where nothing is wrong.
constexpr auto kPairTimeout = std::chrono::milliseconds(500);
constexpr std::uint64_t kAllPairsNs = 10'000'000'000;

// All writers at a time. `memory` is the reader's, for as many writers as there are GPUs; taken
// when it is first needed.
Status try_writers(std::span<const int> writers, const GpuEngine& reader, std::size_t gpus,
                   Memory& memory, DeferredRelease& deferred) {
  if (!memory) {
    Result<Memory> made = reader.device().allocate(gpus * kLl128TestBytes);
    if (!made) return std::move(made).error();
    memory = std::move(made).value();
  }
  Status tried = reader.launcher().try_atomic_128b_stores(writers, memory.data(), kPairTimeout);
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
    std::vector<int> writers;  // that are alone
    for (const GpuEngine& writer : engines) {
      if (&writer == &reader) continue;
      Status tried = error(ErrorCode::DeadlineExceeded, Reason::Timeout,
                           "not tried, as the pairs before took too long");
      const int alone[] = {writer.ordinal()};
      if (now_ns() < begin + kAllPairsNs)
        tried = try_writers(alone, reader, gpus, memory, deferred);
      whole_[place(writer, reader)] = tried.ok();
      if (tried) {
        writers.push_back(writer.ordinal());
        continue;
      }
      log::warn(
          "stores of 128 bytes from {} to {} are not known to arrive whole, and communicators over "
          "both do without: {}",
          writer.name(), reader.name(), tried.error().message);
    }
    Status together;
    if (writers.size() > 1) together = try_writers(writers, reader, gpus, memory, deferred);
    if (together) {
      count += writers.size();
      continue;
    }
    for (const GpuEngine& writer : engines) whole_[place(writer, reader)] = &writer == &reader;
    log::warn(
        "stores of 128 bytes to {} are not known to arrive whole where several GPUs store, and "
        "communicators over it do without: {}",
        reader.name(), together.error().message);
  }
  log::info(
      "stores of 128 bytes arrive whole between {} of {} ordered pairs of GPUs (tried in {} ms)",
      count, gpus * (gpus - 1), (now_ns() - begin) / 1'000'000);
}

}  // namespace arcomm
