#include "tests/gpu/client_bench.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <fstream>

#include "tests/gpu/client_options.h"
#include "tests/gpu/pattern_memory.h"

namespace arcomm::gpu {
namespace {

constexpr int kBenchPatterns = 4;  // each of them as many inputs as it has elements to begin with
constexpr int kChain = 10;         // operations in a graph
constexpr int kWarmUps = 20;
// Larger results are looked at in windows, one in each part of the result: reading all of it back
// would take longer than everything else.
constexpr std::uint64_t kWholeBytes = 64 << 20;
constexpr std::uint64_t kWindows = 64, kWindowBytes = 64 << 10;
constexpr int kPoison = 0xff;  // NaNs, and not those that a sum gives

// Nearest rank: of fewer than 100, the 99th percentile is the worst.
double percentile(const std::vector<double>& sorted, double part) {
  const double rank = std::ceil(part * static_cast<double>(sorted.size()));
  return sorted[static_cast<std::size_t>(std::max(rank, 1.0)) - 1];
}

}  // namespace

ClientBench::ClientBench(ClientComm& comm, std::optional<double> light_gbs)
    : comm_(comm), light_gbs_(light_gbs) {
  for (int i = 0; i < kBenchPatterns; ++i) patterns_.push_back(make_pattern(i));
  cuda(cudaMallocHost(reinterpret_cast<void**>(&host_), kWholeBytes + kSlackBytes),
       "pinned memory");
}

void ClientBench::run() {
  for (const std::uint64_t bytes : options.sizes) {
    const std::uint64_t count = bytes / size_of(options.dtype);
    const auto all_reduce = [&] {
      comm_.all_reduce(comm_.send(), comm_.recv(), count, comm_.stream());
    };
    std::optional<Times> stream;
    if (!options.graph_only) {
      stream = time(bytes, "on a stream", [&](int operations) {
        for (int i = 0; i < operations; ++i) all_reduce();
      });
    }
    cudaGraphExec_t chain = comm_.captured([&] {
      for (int i = 0; i < kChain; ++i) all_reduce();
    });
    const Times graph = time(bytes, "in a graph", [&](int operations) {
      for (int i = 0; i < operations; i += kChain) {
        cuda(cudaGraphLaunch(chain, comm_.stream()), "cudaGraphLaunch");
      }
    });
    cuda(cudaGraphExecDestroy(chain), "cudaGraphExecDestroy");
    if (options.rank == 0) print(bytes, stream, graph);
  }
  if (options.rank != 0 || options.json.empty()) return;
  std::ofstream file(options.json);
  file << '[';
  for (std::size_t i = 0; i < rows_.size(); ++i) file << (i > 0 ? ",\n " : "") << rows_[i];
  file << "]\n";
  if (!file.flush()) die("cannot write " + options.json);
}

// Whole graphs, enough of them that the 99th percentile says something, and few seconds in all.
ClientBench::Batches ClientBench::batches_of(std::uint64_t bytes) {
  if (bytes <= (1 << 20)) return {.number = 101, .operations = 10 * kChain};
  if (bytes <= (16 << 20)) return {.number = 101, .operations = 2 * kChain};
  if (bytes <= kWholeBytes) return {.number = 51, .operations = kChain};
  return {.number = bytes <= (256 << 20) ? 31 : 21, .operations = kChain};
}

ClientBench::Times ClientBench::time(std::uint64_t bytes, const char* how,
                                     const std::function<void(int)>& enqueue) {
  const auto [number, operations] = batches_of(bytes);
  const std::uint64_t count = bytes / size_of(options.dtype);
  cudaEvent_t begin = nullptr, end = nullptr;
  cuda(cudaEventCreate(&begin), "cudaEventCreate");
  cuda(cudaEventCreate(&end), "cudaEventCreate");
  enqueue(kWarmUps);
  comm_.settle("warming up");
  std::vector<double> batches;
  for (int batch = 0; batch < number; ++batch) {
    const Pattern& pattern = patterns_[random_() % kBenchPatterns];
    const std::uint64_t shift = random_() % kPeriod;
    cuda(cudaMemsetAsync(comm_.recv(), kPoison, bytes + kSlackBytes / 2, comm_.stream()),
         "poisoning");
    upload(pattern, shift, comm_.send(), count, comm_.stream());
    comm_.greatest(0);  // the processes begin together
    comm_.meet();       // and their GPUs, within a microsecond or two
    cuda(cudaEventRecord(begin, comm_.stream()), "cudaEventRecord");
    enqueue(operations);
    cuda(cudaEventRecord(end, comm_.stream()), "cudaEventRecord");
    comm_.settle("timing");
    float ms = 0;
    cuda(cudaEventElapsedTime(&ms, begin, end), "cudaEventElapsedTime");
    check(bytes, pattern, shift, std::string(how) + ", batch " + std::to_string(batch));
    batches.push_back(comm_.greatest(static_cast<double>(ms) * 1e3 / operations));
  }
  cuda(cudaEventDestroy(begin), "cudaEventDestroy");
  cuda(cudaEventDestroy(end), "cudaEventDestroy");
  std::sort(batches.begin(), batches.end());
  return {.p50 = percentile(batches, 0.5), .p99 = percentile(batches, 0.99)};
}

// The beginning and the end always, and a random place in each of the parts between.
std::vector<ClientBench::Window> ClientBench::windows_of(std::uint64_t bytes) {
  const std::uint64_t element = size_of(options.dtype), count = bytes / element;
  if (bytes <= kWholeBytes) return {{0, count}};
  const std::uint64_t part = count / kWindows, length = kWindowBytes / element;
  std::vector<Window> windows;
  for (std::uint64_t i = 0; i < kWindows; ++i) {
    const std::uint64_t slack = random_() % (part - length + 1);
    windows.push_back({i == 0 ? 0 : i + 1 == kWindows ? count - length : i * part + slack, length});
  }
  return windows;
}

void ClientBench::check(std::uint64_t bytes, const Pattern& pattern, std::uint64_t shift,
                        const std::string& where) {
  const std::uint64_t element = size_of(options.dtype), count = bytes / element;
  std::vector<Window> windows = windows_of(bytes);
  windows.push_back({count, 1});  // what nothing may touch
  std::byte* to = host_;
  for (const Window& window : windows) {
    cuda(cudaMemcpyAsync(to, comm_.recv() + window.first * element, window.count * element,
                         cudaMemcpyDefault, comm_.stream()),
         "downloading");
    to += window.count * element;
  }
  comm_.settle("downloading");
  const auto wrong = [&](const std::string& what) {
    die("WRONG RESULT " + where + ", " + std::to_string(count) + " elements: " + what);
  };
  const std::byte* got = host_;
  checked_ = 0;
  for (const Window& window : windows) {
    const std::uint64_t length = window.count * element;
    if (window.first == count) {
      std::byte untouched[sizeof(std::uint64_t)];
      std::memset(untouched, kPoison, sizeof(untouched));
      if (std::memcmp(got, untouched, length) != 0) wrong("what is behind it was touched");
      break;
    }
    if (const auto what = difference(pattern, shift, got, window.first, window.count)) wrong(*what);
    got += length;
    checked_ += length;
  }
}

// Bus bandwidth as nccl-tests counts it: what each GPU must send and receive at least.
std::string ClientBench::text_of_times(std::uint64_t bytes, const Times& times) const {
  const double algorithm = static_cast<double>(bytes) / times.p50 * 1e-3;
  const double bus = algorithm * 2 * (options.ranks - 1) / options.ranks;
  char text[200];
  std::snprintf(text, sizeof(text),
                "{\"p50_us\": %.2f, \"p99_us\": %.2f, \"algbw_gbs\": %.2f, \"busbw_gbs\": %.2f, "
                "\"of_light_pct\": ",
                times.p50, times.p99, algorithm, bus);
  std::string all = text;
  if (!light_gbs_) return all + "null}";
  std::snprintf(text, sizeof(text), "%.1f}", 100 * bus / *light_gbs_);
  return all + text;
}

void ClientBench::print(std::uint64_t bytes, const std::optional<Times>& stream,
                        const Times& graph) {
  const auto [number, operations] = batches_of(bytes);
  char text[400];
  std::snprintf(text, sizeof(text),
                "{\"bytes\": %llu, \"ranks\": %d, \"dtype\": \"%s\", \"memory\": \"%s\", "
                "\"checked\": \"%s\", \"checked_bytes\": %llu, \"batches\": %d, \"operations\": "
                "%d, \"light_gbs\": ",
                static_cast<unsigned long long>(bytes), options.ranks,
                std::string(text_of(options.dtype)).c_str(), options.is_arc_memory ? "arc" : "cuda",
                checked_ == bytes ? "all" : "sampled", static_cast<unsigned long long>(checked_),
                number, operations);
  std::string row = text;
  std::snprintf(text, sizeof(text), "%.1f", light_gbs_.value_or(0));
  row += light_gbs_ ? text : "null";
  row += ", \"stream\": " + (stream ? text_of_times(bytes, *stream) : "null");
  row += ", \"graph\": " + text_of_times(bytes, graph) + "}";
  rows_.push_back(row);
  std::puts(row.c_str());
  std::fflush(stdout);
}

}  // namespace arcomm::gpu
