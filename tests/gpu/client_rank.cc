// One rank of a communicator through the daemon, in a process of its own, as a server would be:
// device pointers and streams in, results compared bit for bit with kernels/host/reference.h.
//   client_rank --rank R --ranks N --id-file PATH [--runtime-dir DIR] [--gpu G] [--sizes
//   1k,64m,...]
//     [--dtype f16|bf16|f32] [--memory arc|cuda] [--verify] [--bench] [--graph] [--loop]
//     [--json FILE] [--timeout-ms T]
// --verify is the default; --graph leaves the plain stream out; --loop works for a minute, for who
// wants to disturb it. Rank 0 prints one JSON line for each size that it timed (and writes them to
// FILE): the slowest rank's microseconds, median of batches. Exit code 1 and a sentence on stderr
// where anything is not as it must be.
#include <cuda_runtime_api.h>
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "client/include/arclient.h"
#include "tests/gpu/client_options.h"
#include "tests/gpu/client_pattern.h"

namespace arcomm::gpu {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr int kPatterns = 3;
constexpr int kWarmUps = 20;
constexpr int kBatches = 15;
constexpr std::uint64_t kSlackBytes = 4096;
constexpr milliseconds kPatience{40'000};

// By a file, which rank 0 puts in place whole.
arcUniqueId exchange_id() {
  arcUniqueId id;
  if (options.rank == 0) {
    if (::access(options.id_file.c_str(), F_OK) == 0) {
      die(options.id_file + " is there already: remove it, or the other ranks take an old id");
    }
    arc(arcGetUniqueId(&id), "arcGetUniqueId");
    const std::string part = options.id_file + ".part";
    std::ofstream(part, std::ios::binary).write(id.internal, sizeof(id.internal));
    if (std::rename(part.c_str(), options.id_file.c_str()) != 0) die("cannot write the id file");
    return id;
  }
  const Clock::time_point deadline = Clock::now() + kPatience;
  for (;;) {
    std::ifstream file(options.id_file, std::ios::binary);
    if (file.read(id.internal, sizeof(id.internal))) return id;
    if (Clock::now() >= deadline) die("rank 0 wrote no id to " + options.id_file);
    std::this_thread::sleep_for(milliseconds(20));
  }
}

class ClientRank {
 public:
  explicit ClientRank(arcUniqueId id) {
    arc(arcCommInitRank(&comm_, options.ranks, id, options.rank), "arcCommInitRank");
    const std::uint64_t most =
        *std::max_element(options.sizes.begin(), options.sizes.end()) + kSlackBytes;
    send_ = memory(most);
    recv_ = memory(most);
    cuda(cudaMalloc(reinterpret_cast<void**>(&agreed_), sizeof(float)), "cudaMalloc");
    if (options.verify)
      cuda(cudaMallocHost(reinterpret_cast<void**>(&host_), most), "pinned memory");
    for (cudaStream_t* stream : {&stream_, &other_}) {
      cuda(cudaStreamCreateWithFlags(stream, cudaStreamNonBlocking), "cudaStreamCreate");
    }
  }

  void verify(const std::vector<Pattern>& patterns) {
    for (const std::uint64_t bytes : options.sizes) {
      for (const bool in_place : {false, true}) {
        for (const std::uint64_t shift : {0, 1}) {
          const Case each{.count = bytes / size_of(options.dtype) - 3 * shift,
                          .offset = shift * size_of(options.dtype),
                          .in_place = in_place};
          in_graph(each, patterns);  // first: what is not registered yet is registered in a capture
          if (!options.graph_only) on_stream(each, patterns);
          if (!options.graph_only && shift == 0) by_plan(each, patterns[0]);
        }
      }
      if (options.rank == 0) std::printf("verified %llu bytes\n", ull(bytes));
    }
    if (!options.graph_only) on_two_streams(patterns[0]);
    std::fflush(stdout);
  }

  void bench() {
    for (const std::uint64_t bytes : options.sizes) {
      const Case each{.count = bytes / size_of(options.dtype), .offset = 0, .in_place = false};
      const int operations = bytes <= (1 << 20) ? 200 : bytes <= (64 << 20) ? 40 : 10;
      Times stream, graph;
      if (!options.graph_only) {
        stream = time(operations, [&](int count) {
          for (int i = 0; i < count; ++i) all_reduce(each, stream_);
        });
      }
      // One graph is a chain of ten.
      cudaGraphExec_t chain = captured([&] {
        for (int i = 0; i < 10; ++i) all_reduce(each, stream_);
      });
      graph = time(operations, [&](int count) {
        for (int i = 0; i < (count + 9) / 10; ++i) {
          cuda(cudaGraphLaunch(chain, stream_), "cudaGraphLaunch");
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
  }

  // Small ones and large ones, on both lanes, until something is wrong.
  void loop() {
    const Case small{.count = 1024},
        large{.count = std::min<std::uint64_t>(options.sizes.back(), 4 << 20) / 4};
    for (const Clock::time_point end = Clock::now() + std::chrono::seconds(50);
         Clock::now() < end;) {
      for (int i = 0; i < 50; ++i) all_reduce(i % 10 == 0 ? large : small, stream_);
      settle("the loop");
    }
  }

  void leave() {
    // All ranks have verified everything when this has ended; then any of them may be gone first.
    arc(arcAllReduce(agreed_, agreed_, 1, arcFloat32, arcMax, comm_, stream_), "arcAllReduce");
    synchronize("the last operation");
    arc(arcCommDestroy(comm_), "arcCommDestroy");
    if (options.is_arc_memory) {
      arc(arcMemFree(send_), "arcMemFree");
      arc(arcMemFree(recv_), "arcMemFree");
    }
  }

 private:
  struct Case {
    std::uint64_t count = 0, offset = 0;  // elements, bytes
    bool in_place = false;
  };
  struct Times {
    double median = 0, worst = 0;  // microseconds for one operation, of the slowest rank
  };

  static unsigned long long ull(std::uint64_t value) { return value; }

  std::byte* memory(std::uint64_t bytes) {
    void* place = nullptr;
    if (options.is_arc_memory) {
      arc(arcMemAlloc(&place, bytes), "arcMemAlloc");
    } else {
      cuda(cudaMalloc(&place, bytes), "cudaMalloc");
    }
    return static_cast<std::byte*>(place);
  }

  std::byte* from(const Case& each) const { return (each.in_place ? recv_ : send_) + each.offset; }

  void all_reduce(const Case& each, cudaStream_t stream) {
    arc(arcAllReduce(from(each), recv_ + each.offset, each.count, data_type(), arcSum, comm_,
                     stream),
        "arcAllReduce");
  }

  static arcDataType_t data_type() { return static_cast<arcDataType_t>(options.dtype); }

  // Waits for both streams, for a limited time.
  void synchronize(const char* what) {
    const Clock::time_point deadline = Clock::now() + kPatience;
    for (const cudaStream_t stream : {stream_, other_}) {
      cudaError_t state = cudaErrorNotReady;
      while ((state = cudaStreamQuery(stream)) == cudaErrorNotReady) {
        if (Clock::now() >= deadline) die(std::string("a stream hangs in ") + what);
      }
      cuda(state, what);
    }
  }

  // And asks whether all went well.
  void settle(const char* what) {
    synchronize(what);
    arcResult_t state = arcSuccess;
    arc(arcCommGetAsyncError(comm_, &state), "arcCommGetAsyncError");
    arc(state, what);
  }

  void upload(const Case& each, const Pattern& pattern, cudaStream_t stream) {
    const std::uint64_t bytes = each.count * size_of(options.dtype);
    cuda(cudaMemsetAsync(recv_, 0xff, bytes + kSlackBytes / 2, stream), "poisoning");
    fill(each, pattern, stream);
  }

  void fill(const Case& each, const Pattern& pattern, cudaStream_t stream) {
    const std::uint64_t element = size_of(options.dtype);
    std::byte* const to = from(each);
    for (std::uint64_t first = 0; first < each.count; first += kPeriod) {
      const std::uint64_t length = std::min(kPeriod, each.count - first) * element;
      const void* source = first == 0 ? static_cast<const void*>(pattern.mine.data()) : to;
      cuda(cudaMemcpyAsync(to + first * element, source, length, cudaMemcpyDefault, stream),
           "uploading");
    }
  }

  void compare(const Case& each, const Pattern& pattern, const char* how) {
    settle(how);
    const std::uint64_t element = size_of(options.dtype), bytes = each.count * element;
    cuda(cudaMemcpyAsync(host_, recv_ + each.offset, bytes + element, cudaMemcpyDefault, stream_),
         "downloading");
    settle("downloading");
    const auto where = [&](std::uint64_t index) {
      return std::string(how) + ", " + std::to_string(each.count) + " elements at byte offset " +
             std::to_string(each.offset) + (each.in_place ? ", in place" : ", out of place") +
             ": element " + std::to_string(index);
    };
    for (std::uint64_t first = 0; first < each.count; first += kPeriod) {
      const std::uint64_t length = std::min(kPeriod, each.count - first);
      if (std::memcmp(host_ + first * element, pattern.expected.data(), length * element) == 0) {
        continue;
      }
      for (std::uint64_t i = 0; i < length; ++i) {
        unsigned got = 0, expected = 0;
        std::memcpy(&got, host_ + (first + i) * element, element);
        std::memcpy(&expected, pattern.expected.data() + i * element, element);
        if (got == expected) continue;
        char text[64];
        std::snprintf(text, sizeof(text), " is %#x and must be %#x", got, expected);
        die(where(first + i) + text);
      }
    }
    unsigned behind = 0;
    std::memcpy(&behind, host_ + bytes, element);
    if (behind != (element == 2 ? 0xffffU : 0xffffffffU)) die(where(each.count) + " was touched");
  }

  void on_stream(const Case& each, const std::vector<Pattern>& patterns) {
    for (const Pattern& pattern : patterns) {
      upload(each, pattern, stream_);
      all_reduce(each, stream_);
      compare(each, pattern, "on a stream");
    }
  }

  // Neither stream knows of the other: the order of the calls is all that the ranks share.
  void on_two_streams(const Pattern& pattern) {
    constexpr std::uint64_t kApartBytes = 16384, kCalls = 48;
    if (options.sizes.back() < kApartBytes * kCalls) return;
    std::vector<Case> cases;
    cuda(cudaMemsetAsync(recv_, 0xff, kApartBytes * kCalls, stream_), "poisoning");
    for (std::uint64_t i = 0; i < kCalls; ++i) {
      cases.push_back({.count = 1000 + 40 * i, .offset = i * kApartBytes});
      fill(cases.back(), pattern, stream_);
    }
    settle("uploading");
    for (std::uint64_t i = 0; i < kCalls; ++i) all_reduce(cases[i], i % 3 == 0 ? other_ : stream_);
    for (const Case& each : cases) compare(each, pattern, "on two streams");
  }

  void by_plan(const Case& each, const Pattern& pattern) {
    arcPlan_t plan = nullptr;
    arc(arcPlanCreateAllReduce(&plan, from(each), recv_ + each.offset, each.count, data_type(),
                               arcSum, comm_),
        "arcPlanCreateAllReduce");
    for (int i = 0; i < 2; ++i) {
      upload(each, pattern, stream_);
      arc(arcPlanStart(plan, stream_), "arcPlanStart");
      compare(each, pattern, "by a plan");
    }
    arc(arcPlanDestroy(plan), "arcPlanDestroy");
  }

  // The strictest mode: nothing unsafe may be called by any thread.
  cudaGraphExec_t captured(const std::function<void()>& work) {
    cuda(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeGlobal), "cudaStreamBeginCapture");
    work();
    cudaGraph_t graph = nullptr;
    cuda(cudaStreamEndCapture(stream_, &graph), "cudaStreamEndCapture");
    cudaGraphExec_t runnable = nullptr;
    cuda(cudaGraphInstantiate(&runnable, graph, 0), "cudaGraphInstantiate");
    cuda(cudaGraphDestroy(graph), "cudaGraphDestroy");
    return runnable;
  }

  // With other inputs at each replay, and once on another stream.
  void in_graph(const Case& each, const std::vector<Pattern>& patterns) {
    cudaGraphExec_t graph = captured([&] { all_reduce(each, stream_); });
    for (std::size_t i = 0; i < patterns.size(); ++i) {
      const cudaStream_t stream = i == 1 ? other_ : stream_;
      upload(each, patterns[i], stream);
      cuda(cudaGraphLaunch(graph, stream), "cudaGraphLaunch");
      compare(each, patterns[i], "in a graph");
    }
    cuda(cudaGraphExecDestroy(graph), "cudaGraphExecDestroy");
  }

  double slowest(double time) {
    const auto mine = static_cast<float>(time);
    cuda(cudaMemcpyAsync(agreed_, &mine, sizeof(mine), cudaMemcpyDefault, stream_), "uploading");
    arc(arcAllReduce(agreed_, agreed_, 1, arcFloat32, arcMax, comm_, stream_), "arcAllReduce");
    float all = 0;
    cuda(cudaMemcpyAsync(&all, agreed_, sizeof(all), cudaMemcpyDefault, stream_), "downloading");
    settle("agreeing on a time");
    return static_cast<double>(all);
  }

  Times time(int operations, const std::function<void(int)>& enqueue) {
    cudaEvent_t begin = nullptr, end = nullptr;
    cuda(cudaEventCreate(&begin), "cudaEventCreate");
    cuda(cudaEventCreate(&end), "cudaEventCreate");
    enqueue(kWarmUps);
    settle("warming up");
    std::vector<double> batches;
    for (int batch = 0; batch < kBatches; ++batch) {
      slowest(0);  // the ranks begin together
      cuda(cudaEventRecord(begin, stream_), "cudaEventRecord");
      enqueue(operations);
      cuda(cudaEventRecord(end, stream_), "cudaEventRecord");
      settle("timing");
      float ms = 0;
      cuda(cudaEventElapsedTime(&ms, begin, end), "cudaEventElapsedTime");
      batches.push_back(slowest(static_cast<double>(ms) * 1e3 / operations));
    }
    cuda(cudaEventDestroy(begin), "cudaEventDestroy");
    cuda(cudaEventDestroy(end), "cudaEventDestroy");
    std::sort(batches.begin(), batches.end());
    return {.median = batches[kBatches / 2], .worst = batches.back()};
  }

  void print(std::uint64_t bytes, const Times& stream, const Times& graph) {
    const double moved = 2.0 * (options.ranks - 1) / options.ranks * static_cast<double>(bytes);
    const auto bandwidth = [moved](const Times& times) {
      return times.median > 0 ? moved / times.median / 1e3 : 0;
    };
    char row[400];
    std::snprintf(
        row, sizeof(row),
        "{\"bytes\": %llu, \"ranks\": %d, \"dtype\": \"%s\", \"memory\": \"%s\", \"stream_us\": "
        "%.2f, \"stream_worst_us\": %.2f, \"stream_busbw_gbs\": %.1f, \"graph_us\": %.2f, "
        "\"graph_worst_us\": %.2f, \"graph_busbw_gbs\": %.1f}",
        ull(bytes), options.ranks, std::string(text_of(options.dtype)).c_str(),
        options.is_arc_memory ? "arc" : "cuda", stream.median, stream.worst, bandwidth(stream),
        graph.median, graph.worst, bandwidth(graph));
    rows_.emplace_back(row);
    std::puts(row);
    std::fflush(stdout);
  }

  arcComm_t comm_ = nullptr;
  std::byte *send_ = nullptr, *recv_ = nullptr, *host_ = nullptr;
  float* agreed_ = nullptr;
  cudaStream_t stream_ = nullptr, other_ = nullptr;
  std::vector<std::string> rows_;
};

int run(int argc, char** argv) {
  parse(argc, argv);
  cuda(cudaSetDevice(options.gpu), "cudaSetDevice");
  arcConfig_t config = ARC_CONFIG_INITIALIZER;
  config.runtime_dir = options.runtime_dir.empty() ? nullptr : options.runtime_dir.c_str();
  config.device = "gpu";
  config.timeout_ms = options.timeout_ms;
  arc(arcInit(&config), "arcInit");
  ClientRank rank(exchange_id());
  if (options.verify) {
    std::vector<Pattern> patterns;
    for (int i = 0; i < kPatterns; ++i) patterns.push_back(make_pattern(i));
    rank.verify(patterns);
  }
  if (options.bench) rank.bench();
  if (options.loop) rank.loop();
  rank.leave();
  arc(arcFinalize(), "arcFinalize");
  if (options.rank == 0) std::printf("rank 0 of %d: all is well\n", options.ranks);
  return 0;
}

}  // namespace
}  // namespace arcomm::gpu

int main(int argc, char** argv) {
  return arcomm::gpu::run(argc, argv);
}
