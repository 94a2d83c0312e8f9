// How long the GPU kernels take, beside NCCL in the same process and run: operations back to back
// on a plain stream and in a graph, the slowest rank, median of rounds. What the timed operations
// left is verified.
//   kernel_gpu_bench [--ranks N] [--nccl PATH] [--json FILE] [--blocks N] [--from BYTES]
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <string>

#include "tests/gpu/gpu_node.h"
#include "tests/gpu/nccl_peer.h"

namespace arcomm::gpu {
namespace {

constexpr std::uint64_t kMostBytes = 1ULL << 30;
constexpr int kRounds = 7;

struct Contender {
  CudaAlgorithm algorithm;
  const char* name;
};
constexpr Contender kContenders[] = {
    {CudaAlgorithm::OneShotLl16, "ll16"},   {CudaAlgorithm::TwoShotDirect, "two_shot"},
    {CudaAlgorithm::Stream, "stream"},      {CudaAlgorithm::Flash, "flash"},
    {CudaAlgorithm::OneShotLl128, "ll128"}, {CudaAlgorithm::TwoShotLl128, "ll128_x2"}};

struct Options {
  int ranks = 2;
  std::string nccl, json;
  std::uint32_t blocks = 0;  // 0: the kernels' own rule
  std::uint64_t from_bytes = 1024;
};

// Enqueues one operation on every rank's stream.
using Enqueue = std::function<bool()>;

double slowest_us(const std::vector<std::pair<cudaEvent_t, cudaEvent_t>>& events, int operations) {
  float most = 0;
  for (const auto& [start, end] : events) {
    float ms = 0;
    cudaEventElapsedTime(&ms, start, end);
    most = std::max(most, ms);
  }
  return static_cast<double>(most) * 1e3 / operations;
}

class Clock {
 public:
  explicit Clock(GpuNode& node) : node_(node) {
    for (int rank = 0; rank < node.ranks(); ++rank) {
      cudaSetDevice(rank);
      cudaEvent_t start = nullptr, end = nullptr;
      cudaEventCreate(&start);
      cudaEventCreate(&end);
      events_.emplace_back(start, end);
    }
  }

  // Microseconds per operation: median over rounds of the slowest rank. Negative: it failed.
  double time(const Enqueue& enqueue, int operations, int launches) {
    std::vector<double> rounds;
    for (int round = 0; round <= kRounds; ++round) {
      if (!enqueue()) return -1;  // ranks start together
      record(true);
      for (int i = 0; i < launches; ++i) {
        if (!enqueue()) return -1;
      }
      record(false);
      if (!node_.synchronize()) return -1;
      if (round > 0) rounds.push_back(slowest_us(events_, operations * launches));
    }
    std::nth_element(rounds.begin(), rounds.begin() + kRounds / 2, rounds.end());
    return rounds[kRounds / 2];
  }

  // The same, with `operations` of them captured into a graph per rank.
  double time_graph(const Enqueue& enqueue, int operations, int launches) {
    std::vector<cudaGraphExec_t> graphs(events_.size());
    for (int rank = 0; rank < node_.ranks(); ++rank) {
      cudaSetDevice(rank);
      cudaStreamBeginCapture(node_[rank].stream->handle(), cudaStreamCaptureModeRelaxed);
    }
    bool captured = true;
    for (int i = 0; i < operations; ++i) captured &= enqueue();
    for (int rank = 0; rank < node_.ranks(); ++rank) {
      cudaSetDevice(rank);
      cudaGraph_t graph = nullptr;
      captured &= cudaStreamEndCapture(node_[rank].stream->handle(), &graph) == cudaSuccess;
      captured = captured && cudaGraphInstantiate(&graphs[static_cast<std::size_t>(rank)], graph,
                                                  0) == cudaSuccess;
      if (graph != nullptr) cudaGraphDestroy(graph);
    }
    if (!captured) return -1;
    const auto replay = [&] {
      bool launched = true;
      for (int rank = 0; rank < node_.ranks(); ++rank) {
        cudaSetDevice(rank);
        launched &= cudaGraphLaunch(graphs[static_cast<std::size_t>(rank)],
                                    node_[rank].stream->handle()) == cudaSuccess;
      }
      return launched;
    };
    const double us = time(replay, operations, launches);
    for (cudaGraphExec_t graph : graphs) cudaGraphExecDestroy(graph);
    return us;
  }

 private:
  void record(bool start) {
    for (int rank = 0; rank < node_.ranks(); ++rank) {
      cudaSetDevice(rank);
      const auto& [first, last] = events_[static_cast<std::size_t>(rank)];
      cudaEventRecord(start ? first : last, node_[rank].stream->handle());
    }
  }

  GpuNode& node_;
  std::vector<std::pair<cudaEvent_t, cudaEvent_t>> events_;
};

class Bench {
 public:
  Bench(GpuNode node, NcclPeer nccl, const Options& options)
      : node_(std::move(node)), nccl_(std::move(nccl)), options_(options), clock_(node_) {}

  bool run() {
    fill();
    std::printf("%d GPUs, float16 sum out of place, us (bus GB/s); NCCL %s\n", node_.ranks(),
                nccl_.version().c_str());
    std::printf("%10s", "bytes");
    for (const Contender& one : kContenders) std::printf(" | %9s  in graph", one.name);
    std::printf(" |      NCCL  in graph | NCCL / ours: stream, graph\n");
    bool right = true;
    for (std::uint64_t bytes = options_.from_bytes; bytes <= kMostBytes; bytes *= 4)
      right &= row(bytes);
    if (!options_.json.empty()) save();
    return right;
  }

 private:
  // Small integers, exact in float16 for up to 8 ranks: rank r holds (i % 13) + r.
  void fill() {
    std::vector<std::uint16_t> pattern(kMostBytes / 2);
    for (int rank = 0; rank < node_.ranks(); ++rank) {
      cudaSetDevice(rank);
      for (std::size_t i = 0; i < pattern.size(); ++i)
        pattern[i] = half_of(static_cast<int>(i % 13) + rank);
      cudaMemcpy(node_[rank].send.data(), pattern.data(), kMostBytes, cudaMemcpyHostToDevice);
    }
    expected_.resize(kMostBytes / 2);
    const int ranks = node_.ranks();
    for (std::size_t i = 0; i < expected_.size(); ++i) {
      expected_[i] = half_of(ranks * static_cast<int>(i % 13) + ranks * (ranks - 1) / 2);
    }
  }
  static std::uint16_t half_of(int value) {  // 0 .. 2048
    if (value == 0) return 0;
    const int exponent = 31 - __builtin_clz(static_cast<unsigned>(value));
    return static_cast<std::uint16_t>(((exponent + 15) << 10) |
                                      ((value << (10 - exponent)) & 0x3ff));
  }

  void poison(std::uint64_t bytes) {
    for (int rank = 0; rank < node_.ranks(); ++rank) {
      cudaSetDevice(rank);
      cudaMemset(node_[rank].recv.data(), 0xa5, bytes);
      cudaDeviceSynchronize();
    }
  }
  bool verify(const char* what, std::uint64_t bytes) {
    std::vector<std::uint16_t> got(bytes / 2);
    for (int rank = 0; rank < node_.ranks(); ++rank) {
      cudaSetDevice(rank);
      cudaMemcpy(got.data(), node_[rank].recv.data(), bytes, cudaMemcpyDeviceToHost);
      if (std::memcmp(got.data(), expected_.data(), bytes) != 0 || node_.outcome(rank).code != 0) {
        std::printf("WRONG: %s, %lu bytes, rank %d (outcome %u)\n", what, bytes, rank,
                    node_.outcome(rank).code);
        return false;
      }
    }
    return true;
  }

  struct Times {
    double stream = -1, graph = -1;
  };
  Times measure(const char* what, std::uint64_t bytes, const Enqueue& enqueue, bool& right) {
    const int operations = bytes <= (1 << 20) ? 20 : bytes <= (16 << 20) ? 5 : 1;
    const int launches = bytes <= (1 << 20) ? 10 : bytes <= (64 << 20) ? 4 : 2;
    Times times;
    poison(bytes);
    times.stream = clock_.time(enqueue, 1, operations * launches);
    right &= verify(what, bytes);
    poison(bytes);
    times.graph = clock_.time_graph(enqueue, operations, launches);
    right &= verify(what, bytes);
    return times;
  }

  bool row(std::uint64_t bytes) {
    const std::uint64_t count = bytes / 2;
    bool right = true;
    const auto best = [](double a, double b) { return a < 0 ? b : b < 0 ? a : std::min(a, b); };
    std::string line, json;
    const auto tell = [&](const char* name, Times times) {
      char text[64];
      std::snprintf(text, sizeof(text), " | %9.2f %9.2f", times.stream, times.graph);
      line += times.stream < 0 ? " |         -         -" : text;
      std::snprintf(text, sizeof(text), ", \"%s_us\": [%.3f, %.3f]", name, times.stream,
                    times.graph);
      json += text;
    };
    const std::vector<CudaAlgorithm> algorithms = node_.algorithms();
    Times ours;
    for (const Contender& one : kContenders) {
      Times times;
      if (std::ranges::count(algorithms, one.algorithm) != 0 &&
          can_launch(one.algorithm, bytes, static_cast<std::uint32_t>(node_.ranks()))) {
        times = measure(
            one.name, bytes,
            [&] {
              return node_
                  .launch(one.algorithm, count, DType::Float16, ReduceOp::Sum, {options_.blocks})
                  .ok();
            },
            right);
      }
      ours = {best(ours.stream, times.stream), best(ours.graph, times.graph)};
      tell(one.name, times);
    }
    std::vector<const void*> send;
    std::vector<void*> recv;
    std::vector<cudaStream_t> streams;
    for (int rank = 0; rank < node_.ranks(); ++rank) {
      send.push_back(node_[rank].send.data());
      recv.push_back(node_[rank].recv.data());
      streams.push_back(node_[rank].stream->handle());
    }
    const Times theirs = measure(
        "NCCL", bytes, [&] { return nccl_.all_reduce(send, recv, count, DType::Float16, streams); },
        right);
    tell("nccl", theirs);
    const double moved = 2.0 * (node_.ranks() - 1) / node_.ranks() * static_cast<double>(bytes);
    std::printf("%10lu%s | %5.2f %5.2f  (%.0f GB/s)\n", bytes, line.c_str(),
                theirs.stream / ours.stream, theirs.graph / ours.graph, moved / ours.graph * 1e-3);
    std::fflush(stdout);
    json_ += (json_.empty() ? "" : ",\n") + std::string("  {\"ranks\": ") +
             std::to_string(node_.ranks()) + ", \"bytes\": " + std::to_string(bytes) + json + "}";
    return right;
  }
  void save() const {
    if (std::FILE* file = std::fopen(options_.json.c_str(), "w")) {
      std::fprintf(file, "[\n%s\n]\n", json_.c_str());
      std::fclose(file);
    }
  }

  GpuNode node_;
  NcclPeer nccl_;
  const Options options_;
  Clock clock_;
  std::vector<std::uint16_t> expected_;
  std::string json_;
};

int run(int argc, char** argv) {
  Options options;
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string flag = argv[i];
    if (flag == "--ranks") options.ranks = std::atoi(argv[i + 1]);
    if (flag == "--nccl") options.nccl = argv[i + 1];
    if (flag == "--json") options.json = argv[i + 1];
    if (flag == "--blocks") options.blocks = static_cast<std::uint32_t>(std::atoi(argv[i + 1]));
    if (flag == "--from") options.from_bytes = static_cast<std::uint64_t>(std::atoll(argv[i + 1]));
  }
  auto node = GpuNode::open(options.ranks, kMostBytes);
  if (!node) return std::fprintf(stderr, "%s\n", node.error().to_string().c_str()), 1;
  auto nccl = NcclPeer::open(options.nccl, options.ranks);
  if (!nccl) return std::fprintf(stderr, "%s\n", nccl.error().to_string().c_str()), 1;
  return Bench(std::move(*node), std::move(*nccl), options).run() ? 0 : 1;
}

}  // namespace
}  // namespace arcomm::gpu

int main(int argc, char** argv) {
  ::setenv("CUDA_MODULE_LOADING", "EAGER", 1);
  ::setenv("NCCL_NVLS_ENABLE", "0", 1);
  return arcomm::gpu::run(argc, argv);
}
