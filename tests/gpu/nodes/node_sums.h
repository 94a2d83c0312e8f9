// One way of summing between nodes, checked and timed: random data, poisoned outputs, results held
// bit for bit to kernels/host/reference.h, then the time of an operation that is waited for and of
// many in a row. Of the process's options; what is wrong ends the process (die). For one thread.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "tests/gpu/service/client/client_pattern.h"

namespace arcomm::gpu {

// Whose sums they are. Memory is the GPU's, of the largest size and kSlackBytes more.
struct Summing {
  std::string library;  // as tables name it
  std::byte *send = nullptr, *recv = nullptr;
  cudaStream_t stream = nullptr;
  std::function<void(const void* send, void* recv, std::uint64_t count)> all_reduce;  // on stream
  std::function<void(const char* what)> settle;  // waits for a limited time; all went well
};

// Microseconds, as the host sees them.
struct SumTimes {
  std::uint64_t bytes = 0;
  double median_us = 0, least_us = 0;  // one that is waited for
  double in_a_row_us = 0;              // one of many, called without waiting
};

class NodeSums {
 public:
  explicit NodeSums(Summing summing);

  // Checked before and after it is timed. seed: of the inputs, the same on all ranks.
  SumTimes run(std::uint64_t bytes, int seed);

 private:
  void check(std::uint64_t count, const Pattern& pattern, bool in_place);
  SumTimes measure(std::uint64_t bytes, std::uint64_t count);

  Summing summing_;
  std::byte* host_ = nullptr;  // pinned
};

// {"library": ..., "ranks": ..., "dtype": ..., "rows": [...]}, for nodes_figures.py.
void write_json(const std::string& path, const std::string& library,
                const std::vector<SumTimes>& rows);

}  // namespace arcomm::gpu
