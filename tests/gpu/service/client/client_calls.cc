#include "tests/gpu/service/client/client_calls.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <vector>

#include "tests/gpu/service/client/client_options.h"

namespace arcomm::gpu {
namespace {

using Clock = std::chrono::steady_clock;
constexpr std::uint64_t kCalls = 201, kApartBytes = 512;

// Microseconds in the call, the median; each is over before the next one begins.
double median_of_calls(ClientComm& comm, std::uint64_t count, std::uint64_t apart) {
  std::vector<double> times;
  for (std::uint64_t i = 0; i < kCalls; ++i) {
    const std::uint64_t offset = (i + 1) * apart;
    const Clock::time_point begin = Clock::now();
    comm.all_reduce(comm.send() + offset, comm.recv() + offset, count, comm.stream());
    times.push_back(std::chrono::duration<double, std::micro>(Clock::now() - begin).count());
    comm.synchronize("a call that is timed");
  }
  std::ranges::nth_element(times, times.begin() + kCalls / 2);
  return times[kCalls / 2];
}

}  // namespace

void time_calls(ClientComm& comm) {
  const std::uint64_t most = *std::ranges::max_element(options.sizes);
  if (options.rank == 0)
    std::printf("%12s %16s %12s %10s\n", "bytes", "seen before us", "new us", "more us");
  for (const std::uint64_t bytes : options.sizes) {
    if (bytes + (kCalls + 1) * kApartBytes > most) continue;
    const std::uint64_t count = bytes / size_of(options.dtype);
    median_of_calls(comm, count, 0);
    const double seen = median_of_calls(comm, count, 0);
    const double fresh = median_of_calls(comm, count, kApartBytes);
    comm.settle("calls that were timed");
    if (options.rank == 0)
      std::printf("%12llu %16.2f %12.2f %10.2f\n", static_cast<unsigned long long>(bytes), seen,
                  fresh, fresh - seen);
  }
}

}  // namespace arcomm::gpu
