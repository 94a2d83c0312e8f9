// What a benchmark over GPUs found, as a table and as JSON. Text out: nothing is printed here. Any
// thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "client/arctl/bench/bench_options.h"

namespace arcomm::arctl {

// Of one contender.
struct GpuFigure {
  BenchCase what;
  Measured measured;
};
// Of one size, place and mode: of every contender that was opened, arcommd's first.
using GpuLine = std::vector<GpuFigure>;

struct GpuOpened {
  Contender contender = Contender::Arcommd;
  bool is_open = false;
  std::string said;  // the GPU and CUDA's version, or the library's; or why it was refused
};

struct GpuRun {
  BenchPlan plan;
  // The speed of light: GB/s that each GPU copied to the next one, all at once.
  std::optional<double> light_gb_s;
  std::string light_why;  // there is none
  std::string nvls;       // NCCL_NVLS_ENABLE of the peers
  std::vector<GpuOpened> opened;
  std::vector<GpuLine> lines;
  std::string failure;  // why it ended before everything was measured, if it did
};

// Three lines on what follows, and two of titles. Columns of a fixed width: lines are printed as
// they are measured.
std::string gpu_heading(const GpuRun& run, bool colour);
std::string gpu_line_text(const GpuRun& run, const GpuLine& line, bool colour);
std::string gpu_json(const GpuRun& run);

// Wrong elements of all, and in words the first.
std::pair<std::uint64_t, std::string> wrong_in(const GpuRun& run);

}  // namespace arcomm::arctl
