// What the programs of all systems have in common, so that they time the same thing the same way:
// sizes, repetitions, inputs, and the JSON line that they print. A sample is the slowest rank's
// mean over one round.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "client/arctl/bench/bench_case.h"
#include "client/arctl/bench/pattern.h"
#include "client/arctl/command_line/units.h"

namespace arcomm::bench {

struct PeerOptions {
  std::vector<std::uint64_t> sizes;  // bytes
  DType dtype = DType::Float32;
  int ranks = 2;
  std::uint32_t rounds = 3;
  std::uint32_t warmup = 0;  // calls before the first round; 0: as many as arctl bench has
  double seconds = 0;        // that a round lasts, in the place of a number of iterations
  // Two ranks to a core each, as mpirun does with two processes.
  bool binds_to_cores = false;
  Codec codec = Codec::None;  // of arcommd's own ranks: no peer has one

  std::uint32_t warmup_of(std::uint64_t bytes) const {
    return warmup == 0 ? arctl::default_warmup(bytes) : warmup;
  }
};

// --sizes 1K,64K,1M --dtype bfloat16 --ranks 4 --rounds 3 --codec q4. Exits with 2 and a line on
// stderr when it is wrong.
inline PeerOptions parse_peer_options(int argc, char** argv) {
  PeerOptions options;
  const auto refuse = [&](const char* word) {
    std::fprintf(stderr, "%s: bad argument: %s\n", argv[0], word);
    std::exit(2);
  };
  for (int i = 1; i < argc; i += 2) {
    if (i + 1 == argc) refuse(argv[i]);
    const std::string name = argv[i], value = argv[i + 1];
    if (name == "--sizes") {
      for (std::size_t at = 0; at <= value.size();) {
        const std::size_t end = std::min(value.find(',', at), value.size());
        const auto bytes = arctl::parse_bytes(std::string_view(value).substr(at, end - at));
        if (!bytes) refuse(argv[i + 1]);
        options.sizes.push_back(*bytes);
        at = end + 1;
      }
    } else if (name == "--dtype") {
      const auto dtype = arctl::parse_dtype(value);
      if (!dtype) refuse(argv[i + 1]);
      options.dtype = *dtype;
    } else if (name == "--codec") {
      const auto codec = arctl::parse_codec(value);
      if (!codec) refuse(argv[i + 1]);
      options.codec = *codec;
    } else if (name == "--ranks") {
      options.ranks = std::atoi(argv[i + 1]);
    } else if (name == "--rounds") {
      options.rounds = static_cast<std::uint32_t>(std::atoi(argv[i + 1]));
    } else if (name == "--warmup") {
      options.warmup = static_cast<std::uint32_t>(std::atoi(argv[i + 1]));
    } else if (name == "--bind-to") {
      if (value != "core") refuse(argv[i + 1]);
      options.binds_to_cores = true;
    } else if (name == "--seconds") {
      options.seconds = std::atof(argv[i + 1]);
    } else {
      refuse(argv[i]);
    }
  }
  return options;
}

// A round's mean time of a call, in us, of the slowest rank. `slowest`: collective, the greatest of
// what the ranks pass; by it they agree whether the round has lasted long enough.
template <typename Once, typename Slowest>
double round_us(const PeerOptions& options, std::uint64_t bytes, const Once& once,
                const Slowest& slowest) {
  using Clock = std::chrono::steady_clock;
  std::uint64_t calls = 0, block = options.seconds > 0 ? 1 : arctl::default_iterations(bytes);
  double own = 0, all = 0;
  do {
    const auto start = Clock::now();
    for (std::uint64_t i = 0; i < block; ++i) once();
    own += std::chrono::duration<double, std::micro>(Clock::now() - start).count();
    calls += block;
    block *= 2;
    all = slowest(own);
  } while (all < options.seconds * 1e6);
  return all / static_cast<double>(calls);
}

inline void print_samples(const char* system, const char* algorithm, const PeerOptions& options,
                          std::uint64_t bytes, const std::vector<double>& samples_us,
                          std::uint64_t wrong) {
  std::printf(
      "{\"system\":\"%s\",\"algorithm\":\"%s\",\"ranks\":%d,\"dtype\":\"%s\",\"bytes\":%llu,"
      "\"wrong\":%llu,\"samples_us\":[",
      system, algorithm, options.ranks, text_of(options.dtype).data(),
      static_cast<unsigned long long>(bytes), static_cast<unsigned long long>(wrong));
  for (std::size_t i = 0; i < samples_us.size(); ++i)
    std::printf("%s%.3f", i == 0 ? "" : ",", samples_us[i]);
  std::printf("]}\n");
  std::fflush(stdout);
}

// Sum of bfloat16, accumulated in float and rounded to nearest even: what neither peer brings
// along. Written so that the compiler vectorises it.
inline void add_bfloat16(std::uint16_t* out, const std::uint16_t* a, const std::uint16_t* b,
                         std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) {
    const std::uint32_t wide_a = static_cast<std::uint32_t>(a[i]) << 16,
                        wide_b = static_cast<std::uint32_t>(b[i]) << 16;
    float left, right;
    std::memcpy(&left, &wide_a, sizeof(left));
    std::memcpy(&right, &wide_b, sizeof(right));
    const float sum = left + right;
    std::uint32_t bits;
    std::memcpy(&bits, &sum, sizeof(bits));
    bits += 0x7fff + ((bits >> 16) & 1);
    out[i] = static_cast<std::uint16_t>(bits >> 16);
  }
}

}  // namespace arcomm::bench
