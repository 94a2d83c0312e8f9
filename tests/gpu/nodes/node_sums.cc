#include "tests/gpu/nodes/node_sums.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <utility>

#include "tests/gpu/service/client/client_comm.h"
#include "tests/gpu/service/client/client_options.h"
#include "tests/gpu/service/client/pattern_memory.h"

namespace arcomm::gpu {
namespace {

using Clock = std::chrono::steady_clock;

double microseconds_since(Clock::time_point begin) {
  return std::chrono::duration<double, std::micro>(Clock::now() - begin).count();
}

int rounds_of(std::uint64_t bytes) {
  if (bytes <= (1U << 20)) return 200;
  return bytes <= (16U << 20) ? 30 : 10;
}

}  // namespace

NodeSums::NodeSums(Summing summing) : summing_(std::move(summing)) {
  const std::uint64_t most =
      *std::max_element(options.sizes.begin(), options.sizes.end()) + kSlackBytes;
  cuda(cudaMallocHost(reinterpret_cast<void**>(&host_), most), "pinned memory");
}

SumTimes NodeSums::run(std::uint64_t bytes, int seed) {
  const std::uint64_t count = bytes / size_of(options.dtype);
  const std::vector<Pattern> patterns{make_pattern(seed), make_pattern(seed + 1)};
  for (const Pattern& pattern : patterns) {
    check(count, pattern, false);
    check(count, pattern, true);
  }
  const SumTimes times = measure(bytes, count);
  check(count, patterns[0], false);  // what was timed has left nothing behind that hurts
  return times;
}

void NodeSums::check(std::uint64_t count, const Pattern& pattern, bool in_place) {
  const std::uint64_t bytes = count * size_of(options.dtype);
  std::byte* const from = in_place ? summing_.recv : summing_.send;
  cuda(cudaMemsetAsync(summing_.recv, 0xff, bytes + kSlackBytes / 2, summing_.stream), "poisoning");
  upload(pattern, from, count, summing_.stream);
  summing_.all_reduce(from, summing_.recv, count);
  const std::string what = std::to_string(bytes) + " bytes" + (in_place ? ", in place" : "");
  summing_.settle(what.c_str());
  cuda(cudaMemcpy(host_, summing_.recv, bytes + 4, cudaMemcpyDefault), "downloading");
  // A codec's blocks begin elsewhere in each repetition of the pattern.
  const bool is_known = options.codec == Codec::None || count <= kPeriod;
  const auto wrong = is_known ? difference(pattern, host_, count) : std::nullopt;
  if (wrong) die(what + ": " + *wrong);
  for (std::uint64_t i = 0; i < 4; ++i) {
    if (host_[bytes + i] != std::byte{0xff}) die(what + ": what is behind it was touched");
  }
}

SumTimes NodeSums::measure(std::uint64_t bytes, std::uint64_t count) {
  const int rounds = rounds_of(bytes);
  const auto call = [&] { summing_.all_reduce(summing_.send, summing_.recv, count); };
  for (int i = 0; i < 5; ++i) call();
  summing_.settle("warming up");
  std::vector<double> times;
  for (int i = 0; i < rounds; ++i) {
    const Clock::time_point begin = Clock::now();
    call();
    cuda(cudaStreamSynchronize(summing_.stream), "waiting for an operation");
    times.push_back(microseconds_since(begin));
  }
  summing_.settle("one by one");
  const Clock::time_point begin = Clock::now();
  for (int i = 0; i < rounds; ++i) call();
  cuda(cudaStreamSynchronize(summing_.stream), "waiting for operations");
  const double all = microseconds_since(begin);
  summing_.settle("in a row");
  std::sort(times.begin(), times.end());
  return {.bytes = bytes,
          .median_us = times[times.size() / 2],
          .least_us = times.front(),
          .in_a_row_us = all / rounds};
}

void write_json(const std::string& path, const std::string& library,
                const std::vector<SumTimes>& rows) {
  std::FILE* file = std::fopen(path.c_str(), "w");
  if (file == nullptr) die("cannot write " + path);
  std::fprintf(file, "{\"library\": \"%s\", \"ranks\": %d, \"dtype\": \"%s\", \"rows\": [",
               library.c_str(), options.ranks, std::string(text_of(options.dtype)).c_str());
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const SumTimes& row = rows[i];
    std::fprintf(file,
                 "%s\n  {\"bytes\": %llu, \"median_us\": %.1f, \"least_us\": %.1f, "
                 "\"in_a_row_us\": %.1f}",
                 i == 0 ? "" : ",", static_cast<unsigned long long>(row.bytes), row.median_us,
                 row.least_us, row.in_a_row_us);
  }
  std::fprintf(file, "\n]}\n");
  std::fclose(file);
}

}  // namespace arcomm::gpu
