#include "tests/gpu/bench/gpu_clock.h"

#include <algorithm>

namespace arcomm::gpu {
namespace {

constexpr int kRounds = 7;

}  // namespace

GpuClock::GpuClock(GpuNode& node) : node_(node) {
  for (int rank = 0; rank < node.ranks(); ++rank) {
    cudaSetDevice(rank);
    cudaEvent_t start = nullptr, end = nullptr;
    cudaEventCreate(&start);
    cudaEventCreate(&end);
    events_.emplace_back(start, end);
  }
}

double GpuClock::time(const Enqueue& enqueue, int operations, int launches) {
  std::vector<double> rounds;
  for (int round = 0; round <= kRounds; ++round) {
    if (!enqueue()) return -1;  // ranks start together
    record(true);
    for (int i = 0; i < launches; ++i) {
      if (!enqueue()) return -1;
    }
    record(false);
    if (!node_.synchronize()) return -1;
    if (round > 0) rounds.push_back(slowest_us(operations * launches));
  }
  std::nth_element(rounds.begin(), rounds.begin() + kRounds / 2, rounds.end());
  return rounds[kRounds / 2];
}

double GpuClock::time_graph(const Enqueue& enqueue, int operations, int launches) {
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

void GpuClock::record(bool start) {
  for (int rank = 0; rank < node_.ranks(); ++rank) {
    cudaSetDevice(rank);
    const auto& [first, last] = events_[static_cast<std::size_t>(rank)];
    cudaEventRecord(start ? first : last, node_[rank].stream->handle());
  }
}

double GpuClock::slowest_us(int operations) const {
  float most = 0;
  for (const auto& [start, end] : events_) {
    float ms = 0;
    cudaEventElapsedTime(&ms, start, end);
    most = std::max(most, ms);
  }
  return static_cast<double>(most) * 1e3 / operations;
}

}  // namespace arcomm::gpu
