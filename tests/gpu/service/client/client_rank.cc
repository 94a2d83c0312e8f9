// One rank of a communicator through the daemon, in a process of its own, as a server would be:
// device pointers and streams in, results compared bit for bit with kernels/host/reference.h.
//   client_rank --rank R --ranks N --id-file PATH [--runtime-dir DIR] [--gpu G]
//     [--sizes 1k,64m,...] [--dtype f16|bf16|f32] [--memory arc|cuda] [--verify] [--graph]
//     [--loop] [--hold SECONDS] [--faults] [--calls] [--timeout-ms T] [--soak SECONDS]
//     [--replays N] [--seed S]
// --verify is the default; --graph leaves the plain stream out; --loop works for a minute, for who
// wants to disturb it; --hold keeps the communicator and calls nothing, so that others come after
// it: it says "holding", and ends by itself; --faults does what must fail (client_faults.h), with
// small --timeout-ms; --calls times the call itself (client_calls.h).
// Exit code 1 and a sentence on stderr where anything is not as it must be. A soak (client_soak.h)
// lasts for SECONDS or N replays, whichever is over first. Times are `arctl bench --device gpu`'s.
#include <cuda_runtime_api.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "client/include/arclient.h"
#include "tests/gpu/service/client/client_calls.h"
#include "tests/gpu/service/client/client_comm.h"
#include "tests/gpu/service/client/client_faults.h"
#include "tests/gpu/service/client/client_id.h"
#include "tests/gpu/service/client/client_options.h"
#include "tests/gpu/service/client/client_pattern.h"
#include "tests/gpu/service/client/pattern_memory.h"
#include "tests/gpu/soak/client_soak.h"

namespace arcomm::gpu {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kPatterns = 3;

class ClientRank {
 public:
  explicit ClientRank(ClientComm& comm) : comm_(comm) {}

  void verify(const std::vector<Pattern>& patterns) {
    const std::uint64_t most =
        *std::max_element(options.sizes.begin(), options.sizes.end()) + kSlackBytes;
    cuda(cudaMallocHost(reinterpret_cast<void**>(&host_), most), "pinned memory");
    for (const std::uint64_t bytes : options.sizes) {
      for (const bool in_place : {false, true}) {
        for (const std::uint64_t shift : {0U, 1U}) {
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
    if (!options.graph_only) {
      on_two_streams(patterns[0]);
      on_default_streams(patterns[0]);
      on_pool_memory(patterns[0]);
    }
    std::fflush(stdout);
  }

  // Small ones and large ones, on both lanes, until something is wrong.
  void loop() {
    const Case small{.count = 1024},
        large{.count = std::min<std::uint64_t>(options.sizes.back(), 4 << 20) / 4};
    for (const Clock::time_point end = Clock::now() + std::chrono::seconds(50);
         Clock::now() < end;) {
      for (int i = 0; i < 50; ++i) all_reduce(i % 10 == 0 ? large : small, comm_.stream());
      comm_.settle("the loop");
    }
  }

 private:
  struct Case {
    std::uint64_t count = 0, offset = 0;  // elements, bytes
    bool in_place = false;
  };

  static unsigned long long ull(std::uint64_t value) { return value; }

  std::byte* to(const Case& each) const { return comm_.recv() + each.offset; }
  std::byte* from(const Case& each) const {
    return each.in_place ? to(each) : comm_.send() + each.offset;
  }

  void all_reduce(const Case& each, cudaStream_t stream) {
    comm_.all_reduce(from(each), to(each), each.count, stream);
  }

  void poison_and_upload(const Case& each, const Pattern& pattern, cudaStream_t stream) {
    const std::uint64_t bytes = each.count * size_of(options.dtype);
    cuda(cudaMemsetAsync(comm_.recv(), 0xff, bytes + kSlackBytes / 2, stream), "poisoning");
    upload(pattern, from(each), each.count, stream);
  }

  void compare(const Case& each, const Pattern& pattern, const char* how) {
    comm_.settle(how);
    const std::uint64_t element = size_of(options.dtype), bytes = each.count * element;
    cuda(cudaMemcpyAsync(host_, to(each), bytes + element, cudaMemcpyDefault, comm_.stream()),
         "downloading");
    comm_.settle("downloading");
    const auto where = [&] {
      return std::string(how) + ", " + std::to_string(each.count) + " elements at byte offset " +
             std::to_string(each.offset) + (each.in_place ? ", in place: " : ", out of place: ");
    };
    if (const auto what = difference(pattern, host_, each.count)) die(where() + *what);
    unsigned behind = 0;
    std::memcpy(&behind, host_ + bytes, element);
    if (behind != (element == 2 ? 0xffffU : 0xffffffffU))
      die(where() + "what is behind it was touched");
  }

  void on_stream(const Case& each, const std::vector<Pattern>& patterns) {
    for (const Pattern& pattern : patterns) {
      poison_and_upload(each, pattern, comm_.stream());
      all_reduce(each, comm_.stream());
      compare(each, pattern, "on a stream");
    }
  }

  // Neither stream knows of the other: the order of the calls is all that the ranks share.
  void on_two_streams(const Pattern& pattern) {
    constexpr std::uint64_t kApartBytes = 16384, kCalls = 48;
    if (options.sizes.back() < kApartBytes * kCalls) return;
    std::vector<Case> cases;
    cuda(cudaMemsetAsync(comm_.recv(), 0xff, kApartBytes * kCalls, comm_.stream()), "poisoning");
    for (std::uint64_t i = 0; i < kCalls; ++i) {
      cases.push_back({.count = 1000 + 40 * i, .offset = i * kApartBytes});
      upload(pattern, from(cases.back()), cases.back().count, comm_.stream());
    }
    comm_.settle("uploading");
    for (std::uint64_t i = 0; i < kCalls; ++i)
      all_reduce(cases[i], i % 3 == 0 ? comm_.other() : comm_.stream());
    for (const Case& each : cases) compare(each, pattern, "on two streams");
  }

  // Small and large ones, each right behind what writes its input.
  void on_default_streams(const Pattern& pattern) {
    for (const std::uint64_t bytes : {std::uint64_t{10'000}, options.sizes.back()}) {
      const Case each{.count = std::min(bytes, options.sizes.back()) / size_of(options.dtype)};
      for (cudaStream_t stream : {cudaStreamLegacy, cudaStreamPerThread}) {
        for (int i = 0; i < 3; ++i) {
          poison_and_upload(each, pattern, stream);
          all_reduce(each, stream);
        }
        cuda(cudaStreamSynchronize(stream), "waiting for a default stream");
        compare(each, pattern, "on a default stream");
      }
    }
  }

  // Which no other process could be given: in-stream operations take it, all ranks' or none's.
  void on_pool_memory(const Pattern& pattern) {
    const Case each{.count = 4096};
    if (options.sizes.back() < each.count * size_of(options.dtype)) return;
    for (int i = 0; i < 3; ++i) {
      poison_and_upload(each, pattern, comm_.stream());
      void* pool = nullptr;
      const std::uint64_t bytes = each.count * size_of(options.dtype);
      cuda(cudaMallocAsync(&pool, bytes, comm_.stream()), "memory of a pool");
      cuda(cudaMemcpyAsync(pool, from(each), bytes, cudaMemcpyDefault, comm_.stream()), "copying");
      const arcResult_t done =
          arcAllReduce(pool, to(each), each.count, static_cast<arcDataType_t>(options.dtype),
                       arcSum, comm_.handle(), comm_.stream());
      if (done == arcSuccess) compare(each, pattern, "from a pool's memory");
      cuda(cudaFreeAsync(pool, comm_.stream()), "giving memory back to its pool");
      if (done == arcSuccess) continue;
      std::printf("rank %d: a pool's memory is refused: %s\n", options.rank,
                  arcGetLastError(comm_.handle()));
      return;
    }
  }

  void by_plan(const Case& each, const Pattern& pattern) {
    arcPlan_t plan = nullptr;
    arc(arcPlanCreateAllReduce(&plan, from(each), to(each), each.count,
                               static_cast<arcDataType_t>(options.dtype), arcSum, comm_.handle()),
        "arcPlanCreateAllReduce");
    for (int i = 0; i < 2; ++i) {
      poison_and_upload(each, pattern, comm_.stream());
      arc(arcPlanStart(plan, comm_.stream()), "arcPlanStart");
      compare(each, pattern, "by a plan");
    }
    arc(arcPlanDestroy(plan), "arcPlanDestroy");
  }

  // With other inputs at each replay, and once on another stream.
  void in_graph(const Case& each, const std::vector<Pattern>& patterns) {
    cudaGraphExec_t graph = comm_.captured([&] { all_reduce(each, comm_.stream()); });
    for (std::size_t i = 0; i < patterns.size(); ++i) {
      cudaStream_t stream = i == 1 ? comm_.other() : comm_.stream();
      poison_and_upload(each, patterns[i], stream);
      cuda(cudaGraphLaunch(graph, stream), "cudaGraphLaunch");
      compare(each, patterns[i], "in a graph");
    }
    cuda(cudaGraphExecDestroy(graph), "cudaGraphExecDestroy");
  }

  ClientComm& comm_;
  std::byte* host_ = nullptr;  // pinned
};

int run(int argc, char** argv) {
  parse(argc, argv);
  cuda(cudaSetDevice(options.gpu), "cudaSetDevice");
  arcConfig_t config = ARC_CONFIG_INITIALIZER;
  config.runtime_dir = options.runtime_dir.empty() ? nullptr : options.runtime_dir.c_str();
  config.device = "gpu";
  config.timeout_ms = options.timeout_ms;
  arc(arcInit(&config), "arcInit");
  if (options.soak()) {
    soak(exchange_id(options.id_file));
    arc(arcFinalize(), "arcFinalize");
    return 0;
  }
  ClientComm comm(exchange_id(options.id_file));
  ClientRank rank(comm);
  if (options.verify) {
    std::vector<Pattern> patterns;
    patterns.reserve(kPatterns);
    for (int i = 0; i < kPatterns; ++i) patterns.push_back(make_pattern(i));
    rank.verify(patterns);
  }
  if (options.faults) expect_faults(comm);
  if (options.loop) rank.loop();
  if (options.hold_seconds != 0) {
    std::printf("holding\n");
    std::fflush(stdout);
    std::this_thread::sleep_for(std::chrono::seconds(options.hold_seconds));
  }
  if (options.times_calls) time_calls(comm);
  comm.leave();
  arc(arcFinalize(), "arcFinalize");
  if (options.rank == 0) std::printf("rank 0 of %d: all is well\n", options.ranks);
  return 0;
}

}  // namespace
}  // namespace arcomm::gpu

int main(int argc, char** argv) {
  return arcomm::gpu::run(argc, argv);
}
