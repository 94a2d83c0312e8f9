// How close the host kernels come to the memory: all_reduce_range and the tiled algorithms beside
// copies of the same bytes, measured in the same run. Rates count the traffic of one AllReduce: n
// inputs read, n outputs written.
//   kernel_bench [largest bytes per rank, default 256 MiB] [threads, default all cores]
#include <sys/mman.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <thread>
#include <vector>

#include "kernels/catalog.h"
#include "kernels/host/launch.h"
#include "kernels/partition.h"

namespace arcomm {
namespace {

using Clock = std::chrono::steady_clock;

// Pages that are there before the clock starts.
std::byte* pages(std::uint64_t bytes) {
  void* base = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                      MAP_SHARED | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
  if (base == MAP_FAILED) {
    std::perror("mmap");
    std::exit(1);
  }
  std::memset(base, 1, bytes);
  return static_cast<std::byte*>(base);
}

// Seconds for one call: the best of several batches, each long enough for the clock.
double best_seconds(const std::function<void()>& call) {
  call();
  std::uint64_t calls = 1;
  double best = 1e9;
  for (int batch = 0; batch < 7;) {
    const auto start = Clock::now();
    for (std::uint64_t i = 0; i < calls; ++i) call();
    const double took = std::chrono::duration<double>(Clock::now() - start).count();
    if (took < 0.002) {
      calls *= 2;
      continue;
    }
    best = std::min(best, took / static_cast<double>(calls));
    ++batch;
  }
  return best;
}

// Runs `part(i)` on threads 0 .. count-1 at once. Starting threads counts, so only for work of
// milliseconds.
void in_parallel(std::uint32_t count, const std::function<void(std::uint32_t)>& part) {
  std::vector<std::thread> threads;
  for (std::uint32_t i = 1; i < count; ++i) threads.emplace_back(part, i);
  part(0);
  for (std::thread& thread : threads) thread.join();
}

struct Bench {
  std::uint64_t bytes;
  std::uint32_t ranks, threads;
  const std::vector<std::byte*>&send, &recv;

  double gigabytes(double seconds) const {
    return static_cast<double>(bytes) * 2 * ranks / seconds * 1e-9;
  }
  // The floor: the same bytes read and written, by memcpy.
  double copy() const {
    const std::uint32_t workers = bytes >= (1 << 20) ? threads : 1;
    return best_seconds([&] {
      in_parallel(workers, [&](std::uint32_t worker) {
        const ElementRange mine = shard_range(bytes, DType::Uint8, workers, worker);
        for (std::uint32_t r = 0; r < ranks; ++r) {
          std::memcpy(recv[r] + mine.first, send[r] + mine.first, mine.size());
        }
      });
    });
  }
  double reduce(DType dtype, const Choice& choice, bool in_place) const {
    AllReduceArgs args = AllReduceArgs::among(ranks, bytes / size_of(dtype), dtype);
    for (std::uint32_t r = 0; r < ranks; ++r) {
      args.inputs[r] = in_place ? recv[r] : send[r];
      args.outputs[r] = recv[r];
    }
    if (!entry_of(choice.algorithm).is_tiled) {
      return best_seconds([&] { all_reduce_range(choice, args, 0, args.count); });
    }
    TileCursor cursor;
    return best_seconds([&] {
      cursor.start(choice, args);
      in_parallel(choice.streams, [&](std::uint32_t) {
        while (cursor.pull(choice, args)) {
        }
      });
    });
  }
};

void row(const Bench& bench, DType dtype, const Choice& choice, bool in_place, double copy) {
  const double seconds = bench.reduce(dtype, choice, in_place);
  std::printf("%12llu %5u %-9s %-15s %6u %-3s %12.3f %9.2f %9.2f %7.2f\n",
              static_cast<unsigned long long>(bench.bytes), bench.ranks, text_of(dtype).data(),
              name_of(choice.algorithm).data(), choice.streams, in_place ? "in" : "out",
              seconds * 1e6, bench.gigabytes(seconds), bench.gigabytes(copy), seconds / copy);
  std::fflush(stdout);
}

}  // namespace
}  // namespace arcomm

int main(int argc, char** argv) {
  using namespace arcomm;
  const std::uint64_t largest = argc > 1 ? std::strtoull(argv[1], nullptr, 10) : 256U << 20;
  const auto threads =
      static_cast<std::uint32_t>(argc > 2 ? std::strtoul(argv[2], nullptr, 10)
                                          : std::max(1U, std::thread::hardware_concurrency()));
  constexpr std::uint32_t kRanks = 4;
  std::vector<std::byte*> send, recv;
  for (std::uint32_t r = 0; r < kRanks; ++r) {
    send.push_back(pages(largest));
    recv.push_back(pages(largest));
  }
  std::printf("%12s %5s %-9s %-15s %6s %-3s %12s %9s %9s %7s\n", "bytes", "ranks", "type",
              "algorithm", "thread", "", "us", "GB/s", "copy GB/s", "x copy");
  for (std::uint64_t bytes = 64; bytes <= largest; bytes *= 4) {
    for (const std::uint32_t ranks : {2U, kRanks}) {
      const Bench bench{bytes, ranks, threads, send, recv};
      const double copy = bench.copy();
      for (const DType dtype : {DType::Float32, DType::BFloat16, DType::Float16}) {
        if (bytes <= (4 << 20)) row(bench, dtype, Choice{}, false, copy);
        if (bytes < (1 << 20)) continue;
        for (const Algorithm algorithm : {Algorithm::Tiled, Algorithm::TiledStreaming}) {
          const Choice choice{.algorithm = algorithm, .tile_bytes = 65536, .streams = threads};
          row(bench, dtype, choice, false, copy);
          if (bytes == largest) row(bench, dtype, choice, true, copy);
        }
      }
    }
  }
  return 0;
}
