#include "tests/gpu/bench/network_figures.h"

#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <vector>

#include "daemon/exec/gpu/measure/flag_answers.h"
#include "kernels/launch/pinned_page.h"
#include "kernels/trial/flag_echo.h"
#include "tests/gpu/kernels/network/network_world.h"

namespace arcomm::gpu {
namespace {

struct Spread {
  double least = 0, p50 = 0, p99 = 0;
};
Spread spread_of(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return {values.front(), values[values.size() / 2], values[values.size() * 99 / 100]};
}

// A kernel's flag to this thread and back, by nobody but the two.
bool print_flag_echo() {
  auto page = PinnedPage::create(sizeof(FlagEchoWords));
  if (!page) return false;
  auto* words = static_cast<FlagEchoWords*>(page->host());
  constexpr std::uint64_t kTimes = 100'000, kTimeoutNs = 2'000'000'000;
  *words = FlagEchoWords{};
  if (!launch_flag_echo({.words = words, .times = kTimes, .timeout_ns = kTimeoutNs}, nullptr))
    return false;
  FlagAnswers answers(kTimes);
  answers.answer([words]() -> FlagEchoWords& { return *words; }, now_ns() + kTimeoutNs);
  __atomic_store_n(&words->answered, kStopEcho, __ATOMIC_RELEASE);  // whatever it still waits for
  if (cudaDeviceSynchronize() != cudaSuccess) return false;
  if (words->ended != static_cast<std::uint64_t>(FlagEchoEnd::Answered)) return false;
  const FlagEcho echo = answers.figures();
  std::printf("device flag to a spinning CPU and back: %llu ns (p99 %llu; %llu times)\n",
              static_cast<unsigned long long>(echo.p50_ns),
              static_cast<unsigned long long>(echo.p99_ns),
              static_cast<unsigned long long>(echo.times));
  return true;
}

struct Timed {
  Spread us;
  bool is_right = false;
};
// From before the launches to all verdicts; the last one is held to the reference.
Timed time_operations(const NetworkShape& shape, int times) {
  NetworkWorld world(shape, NetworkWorld::Links::Fast);
  std::vector<double> us;
  for (int i = 0; i < times + 2; ++i) {
    const auto operation = static_cast<std::uint32_t>(i + 1);
    if (i < 2 || i == times + 1) world.prepare(operation);
    const auto from = std::chrono::steady_clock::now();
    world.launch(operation, NetworkWorld::kTimeoutNs);
    for (std::uint32_t number = 0; number < shape.nodes; ++number) {
      const Done done = world.node(number).wait(operation);
      if (done.number != operation || done.code != 0) return {};
    }
    const std::chrono::duration<double, std::micro> took = std::chrono::steady_clock::now() - from;
    if (i >= 2) us.push_back(took.count());
  }
  world.expect_reference_bits();
  return {spread_of(us), !testing::Test::HasFailure()};
}

// Many small steps on one lane: what the engine and a step's words take, whatever the bytes.
bool print_steps() {
  constexpr std::uint64_t kSteps = 4096;
  const Timed timed = time_operations({.lanes = 1, .count = kSteps * 64, .chunk_elements = 64}, 20);
  if (!timed.is_right) return false;
  std::printf(
      "a step of 256 bytes, one lane, eight on the way, both ways at once: %.0f ns "
      "(of %llu steps)\n",
      timed.us.p50 * 1000 / kSteps, static_cast<unsigned long long>(kSteps));
  return true;
}

bool print_sizes() {
  std::printf(
      "two nodes on one GPU, one proxy thread that copies from slot to slot; float32; "
      "launches included\n%12s %22s %22s\n",
      "bytes", "exchange", "ring");
  for (std::uint64_t bytes = 64; bytes <= (64U << 20); bytes *= 4) {
    std::printf("%12llu", static_cast<unsigned long long>(bytes));
    for (const bool is_ring : {false, true}) {
      NetworkShape shape{.is_ring = is_ring, .lanes = 8, .count = bytes / 4};
      shape.chunk_elements = bytes >= (1U << 20) ? 32768 : 4096;
      shape.lanes = bytes >= 65536 ? 8 : 1;
      shape.pool_share = kFifoSteps;  // the ring's depth
      const Timed timed = time_operations(shape, bytes >= (16U << 20) ? 11 : 101);
      if (!timed.is_right) return false;
      std::printf("  %8.1f us %5.2f GB/s", timed.us.p50,
                  static_cast<double>(bytes) / timed.us.p50 / 1000);
    }
    std::printf("\n");
    std::fflush(stdout);
  }
  return true;
}

// What encoding and decoding take beside what they save: the links are memory here, and fast.
bool print_codecs() {
  std::printf(
      "the same exchange of bfloat16 with a codec, GB/s of elements\n%12s %8s %8s %8s %8s %8s\n",
      "bytes", "none", "fp8", "q8", "q4", "q4_rot.");
  for (std::uint64_t bytes = 65536; bytes <= (64U << 20); bytes *= 16) {
    std::printf("%12llu", static_cast<unsigned long long>(bytes));
    for (const Codec codec : {Codec::None, Codec::Fp8, Codec::Q8, Codec::Q4, Codec::Q4Rotated}) {
      const NetworkShape shape{.dtype = DType::BFloat16,
                               .lanes = 8,
                               .count = bytes / 2,
                               .chunk_elements = bytes >= (4U << 20) ? 65536U : 8192U,
                               .codec = codec};
      const Timed timed = time_operations(shape, 11);
      if (!timed.is_right) return false;
      std::printf(" %8.2f", static_cast<double>(bytes) / timed.us.p50 / 1000);
    }
    std::printf("\n");
    std::fflush(stdout);
  }
  return true;
}

}  // namespace

bool print_network_figures() {
  return print_flag_echo() && print_steps() && print_sizes() && print_codecs();
}

}  // namespace arcomm::gpu
