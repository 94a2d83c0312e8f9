// The benchmark of one rank: sums back to back, on a stream and in a graph, and what comes out of
// every batch that is timed held to the host's reference.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <functional>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "tests/gpu/client_comm.h"
#include "tests/gpu/client_pattern.h"

namespace arcomm::gpu {

class ClientBench {
 public:
  // light_gbs: what a copy between two GPUs reaches, each way (copy_rate.h); of rank 0, if known.
  ClientBench(ClientComm& comm, std::optional<double> light_gbs);

  // Every size of the options; rank 0 prints a line for each, and writes the file of --json.
  void run();

 private:
  // Microseconds for one operation: of the batches' times, each the slowest rank's.
  struct Times {
    double p50 = 0, p99 = 0;
  };
  // What is checked of a result: elements from `first` on.
  struct Window {
    std::uint64_t first = 0, count = 0;
  };
  struct Batches {
    int number = 0, operations = 0;
  };

  Times time(std::uint64_t bytes, const char* how, const std::function<void(int)>& enqueue);
  void check(std::uint64_t bytes, const Pattern& pattern, std::uint64_t shift,
             const std::string& where);
  std::vector<Window> windows_of(std::uint64_t bytes);
  void print(std::uint64_t bytes, const std::optional<Times>& stream, const Times& graph);
  std::string text_of_times(std::uint64_t bytes, const Times& times) const;

  static Batches batches_of(std::uint64_t bytes);

  ClientComm& comm_;
  const std::optional<double> light_gbs_;
  std::vector<Pattern> patterns_;
  std::mt19937_64 random_;     // the ranks draw the same, or their inputs would not fit together
  std::byte* host_ = nullptr;  // pinned
  std::uint64_t checked_ = 0;  // bytes of the last result that was looked at
  std::vector<std::string> rows_;
};

}  // namespace arcomm::gpu
