// All GPUs of the machine as ranks of one process: a thread for each, and then one thread for all
// of them, between arcGroupStart and arcGroupEnd. Calls and replayed graphs, memory of cudaMalloc
// and of arcMemAlloc; results held to kernels/host/reference.h, bit for bit.
//   two_gpus_one_process [--ranks N] [--runtime-dir DIR] [--timeout-ms T]
// All GPUs unless N says otherwise. Exit code 1 and a sentence on stderr where anything is not as
// it must be.
#include <cuda_runtime_api.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "client/include/arclient.h"
#include "tests/gpu/service/sample.h"

namespace arcomm::gpu {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::uint64_t kMostBytes = 4 << 20;
constexpr std::uint64_t kGuardBytes = 64;
constexpr std::size_t kReplays = 30;  // of a graph, and then some
constexpr std::uint64_t kSeeds = 2;
const Shape kShapes[] = {{2, DType::Float32, ReduceOp::Sum},
                         {1001, DType::BFloat16, ReduceOp::Avg},
                         {32768, DType::Float16, ReduceOp::Sum},
                         {99999, DType::Int32, ReduceOp::Max},
                         {(kMostBytes - 64) / 4 - 1, DType::Float32, ReduceOp::Sum}};

int ranks = 0;
std::uint64_t timeout_ms = 10'000;
const char* part = "the beginning";

[[noreturn]] void die(const std::string& what) {
  std::fprintf(stderr, "in %s: %s\n", part, what.c_str());
  std::_Exit(1);  // other threads may wait for this one
}

void cuda(cudaError_t result, const char* what) {
  if (result != cudaSuccess) die(std::string(what) + ": " + cudaGetErrorString(result));
}

void arc(arcResult_t result, const char* what) {
  if (result != arcSuccess) die(std::string(what) + ": " + arcGetLastError(nullptr));
}

struct Example {
  std::vector<Bytes> sent;  // by rank
  Bytes expected;
};

Example example_of(const Shape& shape, std::uint64_t seed) {
  Example example;
  for (int rank = 0; rank < ranks; ++rank) example.sent.push_back(sent_by(rank, shape, seed));
  example.expected = reduced(shape, example.sent);
  return example;
}

// A rank and its GPU. Whatever it is asked for takes place there; nothing but wait() waits for the
// other ranks, so that one thread can ask all of them in turn.
class Rank {
 public:
  explicit Rank(int number) : rank_(number) {}

  void join(const arcUniqueId& id) {
    select();
    arc(arcCommInitRank(&comm_, ranks, id, rank_), "arcCommInitRank");
  }

  void open(bool is_arc_memory) {
    select();
    is_arc_memory_ = is_arc_memory;
    send_ = memory();
    recv_ = memory();
    cuda(cudaMallocHost(reinterpret_cast<void**>(&host_), kMostBytes), "cudaMallocHost");
    cuda(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "cudaStreamCreate");
  }

  void fill(const Example& example) {
    select();
    const Bytes& mine = example.sent[static_cast<std::size_t>(rank_)];
    std::memcpy(host_, mine.data(), mine.size());
    cuda(cudaMemcpyAsync(send_, host_, mine.size(), cudaMemcpyHostToDevice, stream_), "uploading");
    cuda(cudaMemsetAsync(recv_, 0xff, mine.size() + kGuardBytes, stream_), "poisoning");
    wait();
  }

  void call(const Shape& shape) {
    select();
    arc(arcAllReduce(send_, recv_, shape.count, static_cast<arcDataType_t>(shape.dtype),
                     static_cast<arcRedOp_t>(shape.op), comm_, stream_),
        "arcAllReduce");
  }

  void capture(const Shape& shape) {
    select();
    // Other threads do as they please meanwhile.
    cuda(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeThreadLocal), "capturing");
    call(shape);
    cudaGraph_t graph = nullptr;
    cuda(cudaStreamEndCapture(stream_, &graph), "cudaStreamEndCapture");
    graphs_.emplace_back();
    cuda(cudaGraphInstantiate(&graphs_.back(), graph, 0), "cudaGraphInstantiate");
    cuda(cudaGraphDestroy(graph), "cudaGraphDestroy");
  }

  void replay(std::size_t graph) {
    select();
    cuda(cudaGraphLaunch(graphs_[graph], stream_), "cudaGraphLaunch");
  }

  void wait() {
    select();
    const auto deadline = Clock::now() + std::chrono::milliseconds(timeout_ms + 10'000);
    cudaError_t state = cudaErrorNotReady;
    while ((state = cudaStreamQuery(stream_)) == cudaErrorNotReady) {
      if (Clock::now() >= deadline) die("the stream of rank " + std::to_string(rank_) + " hangs");
      std::this_thread::yield();
    }
    cuda(state, "waiting for a stream");
  }

  void check(const Shape& shape, const Example& example) {
    wait();
    arcResult_t how = arcSuccess;
    arc(arcCommGetAsyncError(comm_, &how), "arcCommGetAsyncError");
    arc(how, ("rank " + std::to_string(rank_)).c_str());
    const std::uint64_t bytes = shape.bytes(), element = size_of(shape.dtype);
    cuda(cudaMemcpyAsync(host_, recv_, bytes + kGuardBytes, cudaMemcpyDeviceToHost, stream_),
         "downloading");
    wait();
    Bytes expected = example.expected;
    expected.resize(bytes + kGuardBytes, std::byte{0xff});
    for (std::uint64_t at = 0; at < expected.size(); at += element) {
      if (std::memcmp(host_ + at, expected.data() + at, element) == 0) continue;
      unsigned got = 0, wanted = 0;
      std::memcpy(&got, host_ + at, element);
      std::memcpy(&wanted, expected.data() + at, element);
      char text[200];
      std::snprintf(
          text, sizeof(text), "rank %d, %s of %llu %s: element %llu: got %#x, expected %#x", rank_,
          std::string(text_of(shape.op)).c_str(), static_cast<unsigned long long>(shape.count),
          std::string(text_of(shape.dtype)).c_str(), static_cast<unsigned long long>(at / element),
          got, wanted);
      die(text);
    }
  }

  void leave() {
    select();
    arc(arcCommDestroy(comm_), "arcCommDestroy");
    for (cudaGraphExec_t graph : graphs_) cuda(cudaGraphExecDestroy(graph), "a graph's end");
    graphs_.clear();
    for (std::byte* place : {send_, recv_}) {
      if (is_arc_memory_) {
        arc(arcMemFree(place), "arcMemFree");
      } else {
        cuda(cudaFree(place), "cudaFree");
      }
    }
    cuda(cudaFreeHost(host_), "cudaFreeHost");
    cuda(cudaStreamDestroy(stream_), "cudaStreamDestroy");
  }

 private:
  void select() const { cuda(cudaSetDevice(rank_), "cudaSetDevice"); }

  std::byte* memory() const {
    void* place = nullptr;
    if (is_arc_memory_) {
      arc(arcMemAlloc(&place, kMostBytes), "arcMemAlloc");
    } else {
      cuda(cudaMalloc(&place, kMostBytes), "cudaMalloc");
    }
    return static_cast<std::byte*>(place);
  }

  const int rank_;  // and the number of its GPU
  bool is_arc_memory_ = false;
  arcComm_t comm_ = nullptr;
  cudaStream_t stream_ = nullptr;
  std::byte *send_ = nullptr, *recv_ = nullptr, *host_ = nullptr;
  std::vector<cudaGraphExec_t> graphs_;
};

using Examples = std::vector<std::vector<Example>>;  // by shape, by seed

// `each` does something with every rank: on threads of their own, or one after the other. What one
// rank does first may be another's last: graphs are captured, and memory registered, while other
// ranks have theirs in use.
template <typename Each>
void exercise(const Examples& examples, const Each& each) {
  for (std::size_t s = 0; s < std::size(kShapes); ++s) {
    const Shape& shape = kShapes[s];
    const auto& known = examples[s];
    each([&](Rank& rank) { rank.fill(known[0]); });
    if (s % 2 == 0) each([&](Rank& rank) { rank.call(shape); });
    if (s % 2 == 0) each([&](Rank& rank) { rank.check(shape, known[0]); });
    each([&](Rank& rank) { rank.capture(shape); });
    for (std::size_t i = 0; i < kReplays; ++i) {
      const Example& example = known[i % kSeeds];
      each([&](Rank& rank) { rank.fill(example); });
      for (std::size_t times = 0; times <= i % 3; ++times) {
        each([&](Rank& rank) { rank.replay(s); });
      }
      each([&](Rank& rank) { rank.check(shape, example); });
    }
  }
  // The graphs are as good as ever.
  for (std::size_t s = std::size(kShapes); s-- > 0;) {
    each([&](Rank& rank) { rank.fill(examples[s].back()); });
    each([&](Rank& rank) { rank.replay(s); });
    each([&](Rank& rank) { rank.check(kShapes[s], examples[s].back()); });
  }
}

arcUniqueId new_id() {
  arcUniqueId id;
  arc(arcGetUniqueId(&id), "arcGetUniqueId");
  return id;
}

std::vector<Rank> all_ranks() {
  std::vector<Rank> all;
  all.reserve(static_cast<std::size_t>(ranks));
  for (int rank = 0; rank < ranks; ++rank) all.emplace_back(rank);
  return all;
}

void on_threads(const Examples& examples, bool is_arc_memory) {
  part = is_arc_memory ? "threads, arcMemAlloc" : "threads, cudaMalloc";
  const arcUniqueId id = new_id();
  std::vector<Rank> all = all_ranks();
  std::vector<std::thread> threads;
  threads.reserve(all.size());
  for (Rank& mine : all) {
    threads.emplace_back([&, is_arc_memory] {
      mine.join(id);
      mine.open(is_arc_memory);
      exercise(examples, [&mine](const auto& act) { act(mine); });
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (Rank& rank : all) rank.leave();
  std::printf("%d ranks in one process, %s: all is well\n", ranks, part);
  std::fflush(stdout);
}

void in_groups(const Examples& examples, bool is_arc_memory) {
  part = is_arc_memory ? "groups, arcMemAlloc" : "groups, cudaMalloc";
  const arcUniqueId id = new_id();
  std::vector<Rank> all = all_ranks();
  const auto each = [&all](const auto& act) {
    arc(arcGroupStart(), "arcGroupStart");
    for (Rank& rank : all) act(rank);
    arc(arcGroupEnd(), "arcGroupEnd");
  };
  each([&id](Rank& rank) { rank.join(id); });
  each([&](Rank& rank) { rank.open(is_arc_memory); });
  exercise(examples, each);
  for (Rank& rank : all) rank.leave();
  std::printf("%d ranks in one process, %s: all is well\n", ranks, part);
  std::fflush(stdout);
}

int run(int argc, char** argv) {
  std::string runtime_dir;
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string_view name = argv[i];
    if (name == "--ranks") {
      ranks = std::atoi(argv[i + 1]);
    } else if (name == "--runtime-dir") {
      runtime_dir = argv[i + 1];
    } else if (name == "--timeout-ms") {
      timeout_ms = std::strtoull(argv[i + 1], nullptr, 10);
    } else {
      die("unknown option " + std::string(name));
    }
  }
  int gpus = 0;
  cuda(cudaGetDeviceCount(&gpus), "cudaGetDeviceCount");
  if (ranks == 0) ranks = gpus;
  if (ranks < 2 || ranks > gpus)
    die(std::to_string(ranks) + " ranks on " + std::to_string(gpus) + " GPUs: 2 are needed");
  arcConfig_t config = ARC_CONFIG_INITIALIZER;
  config.runtime_dir = runtime_dir.empty() ? nullptr : runtime_dir.c_str();
  config.device = "gpu";
  config.timeout_ms = timeout_ms;
  arc(arcInit(&config), "arcInit");
  Examples examples;
  for (const Shape& shape : kShapes) {
    examples.emplace_back();
    for (std::uint64_t seed = 0; seed < kSeeds; ++seed)
      examples.back().push_back(example_of(shape, seed));
  }
  for (const bool is_arc_memory : {true, false}) {
    on_threads(examples, is_arc_memory);
    in_groups(examples, is_arc_memory);
  }
  arc(arcFinalize(), "arcFinalize");
  return 0;
}

}  // namespace
}  // namespace arcomm::gpu

int main(int argc, char** argv) {
  return arcomm::gpu::run(argc, argv);
}
