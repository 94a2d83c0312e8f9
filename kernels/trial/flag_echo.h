// An echo of flags: what every hand-over between a kernel and the CPU costs at least. A kernel
// raises a flag in the host's memory, waits until the CPU has answered in another one, and raises
// the next. Any thread; nothing here allocates or waits.
#pragma once

#include <cstdint>

#include "proto/status.h"

namespace arcomm {

// How a kernel's part ended.
enum class FlagEchoEnd : std::uint64_t {
  Runs = 0,      // or has not begun
  Answered = 1,  // all of its questions were
  TimedOut = 2,  // the CPU did not answer the last one that was asked
  Stopped = 3,   // it was told to
};

// Of the host, also the GPU's, and zeroed before a launch; each on a line of its own.
struct FlagEchoWords {
  alignas(128) std::uint64_t asked = 0;     // by the kernel: 1, 2, ..
  alignas(128) std::uint64_t answered = 0;  // by the CPU: the same number, or kStopEcho
  alignas(128) std::uint64_t ended = 0;     // FlagEchoEnd, written by the kernel as its last
};
inline constexpr std::uint64_t kStopEcho = ~std::uint64_t{0};

struct FlagEchoCall {
  FlagEchoWords* words = nullptr;
  std::uint64_t times = 0;       // questions
  std::uint64_t timeout_ns = 0;  // for the answers to all of them
};

// `stream`: a cudaStream_t of a GPU, which is current.
Status launch_flag_echo(const FlagEchoCall& call, void* stream);
// Into the current device, as load_all_reduce_kernels().
Status load_flag_echo_kernel();

}  // namespace arcomm
