// One rank of a communicator of GPUs on several nodes, each with a daemon of its own: random data,
// poisoned outputs, results compared bit for bit, then times.
//   node_rank --rank R --ranks N --id-file PATH --runtime-dir DIR --gpu G [--sizes 1k,...]
//     [--dtype f16|bf16|f32] [--memory arc|cuda]
// Rank 0 prints a row for each size: the time of one operation that is waited for (the median and
// the shortest), and of one among many that are called in a row. With NODE_RANK_JSON=path it writes
// them there, too. Exit code 1 and a sentence on stderr where anything is not as it must be.
#include <cuda_runtime_api.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "client/include/arclient.h"
#include "tests/gpu/service/client_comm.h"
#include "tests/gpu/service/client_id.h"
#include "tests/gpu/service/client_options.h"
#include "tests/gpu/service/client_pattern.h"
#include "tests/gpu/service/pattern_memory.h"

namespace arcomm::gpu {
namespace {

using Clock = std::chrono::steady_clock;

double microseconds_since(Clock::time_point begin) {
  return std::chrono::duration<double, std::micro>(Clock::now() - begin).count();
}

struct Row {
  std::uint64_t bytes = 0;
  double median_us = 0, least_us = 0, in_a_row_us = 0;
};

class NodeRank {
 public:
  explicit NodeRank(ClientComm& comm) : comm_(comm) {
    const std::uint64_t most =
        *std::max_element(options.sizes.begin(), options.sizes.end()) + kSlackBytes;
    cuda(cudaMallocHost(reinterpret_cast<void**>(&host_), most), "pinned memory");
  }

  Row run(std::uint64_t bytes, int seed) {
    const std::uint64_t count = bytes / size_of(options.dtype);
    const std::vector<Pattern> patterns{make_pattern(seed), make_pattern(seed + 1)};
    for (const Pattern& pattern : patterns) {
      check(count, pattern, false);
      check(count, pattern, true);
    }
    Row row = measure(bytes, count);
    check(count, patterns[0], false);  // what was timed has left nothing behind that hurts
    return row;
  }

 private:
  void check(std::uint64_t count, const Pattern& pattern, bool in_place) {
    const std::uint64_t bytes = count * size_of(options.dtype);
    std::byte* const from = in_place ? comm_.recv() : comm_.send();
    cuda(cudaMemsetAsync(comm_.recv(), 0xff, bytes + kSlackBytes / 2, comm_.stream()), "poisoning");
    upload(pattern, from, count, comm_.stream());
    comm_.all_reduce(from, comm_.recv(), count, comm_.stream());
    const std::string what = std::to_string(bytes) + " bytes" + (in_place ? ", in place" : "");
    comm_.settle(what.c_str());
    cuda(cudaMemcpy(host_, comm_.recv(), bytes + 4, cudaMemcpyDefault), "downloading");
    if (const auto wrong = difference(pattern, host_, count)) die(what + ": " + *wrong);
    for (std::uint64_t i = 0; i < 4; ++i) {
      if (host_[bytes + i] != std::byte{0xff}) die(what + ": what is behind it was touched");
    }
  }

  Row measure(std::uint64_t bytes, std::uint64_t count) {
    const int rounds = bytes <= (1U << 20) ? 200 : bytes <= (16U << 20) ? 30 : 10;
    const auto call = [&] { comm_.all_reduce(comm_.send(), comm_.recv(), count, comm_.stream()); };
    for (int i = 0; i < 5; ++i) call();
    comm_.settle("warming up");
    std::vector<double> times;
    for (int i = 0; i < rounds; ++i) {
      const Clock::time_point begin = Clock::now();
      call();
      cuda(cudaStreamSynchronize(comm_.stream()), "waiting for an operation");
      times.push_back(microseconds_since(begin));
    }
    comm_.settle("one by one");
    const Clock::time_point begin = Clock::now();
    for (int i = 0; i < rounds; ++i) call();
    cuda(cudaStreamSynchronize(comm_.stream()), "waiting for operations");
    const double all = microseconds_since(begin);
    comm_.settle("in a row");
    std::sort(times.begin(), times.end());
    return {.bytes = bytes,
            .median_us = times[times.size() / 2],
            .least_us = times.front(),
            .in_a_row_us = all / rounds};
  }

  ClientComm& comm_;
  std::byte* host_ = nullptr;  // pinned
};

void write_json(const std::vector<Row>& rows) {
  const char* path = std::getenv("NODE_RANK_JSON");
  if (path == nullptr) return;
  std::FILE* file = std::fopen(path, "w");
  if (file == nullptr) die(std::string("cannot write ") + path);
  std::fprintf(file, "{\"ranks\": %d, \"dtype\": \"%s\", \"rows\": [", options.ranks,
               std::string(text_of(options.dtype)).c_str());
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const Row& row = rows[i];
    std::fprintf(file,
                 "%s\n  {\"bytes\": %llu, \"median_us\": %.1f, \"least_us\": %.1f, "
                 "\"in_a_row_us\": %.1f}",
                 i == 0 ? "" : ",", static_cast<unsigned long long>(row.bytes), row.median_us,
                 row.least_us, row.in_a_row_us);
  }
  std::fprintf(file, "\n]}\n");
  std::fclose(file);
}

int run(int argc, char** argv) {
  parse(argc, argv);
  cuda(cudaSetDevice(options.gpu), "cudaSetDevice");
  arcConfig_t config = ARC_CONFIG_INITIALIZER;
  config.runtime_dir = options.runtime_dir.empty() ? nullptr : options.runtime_dir.c_str();
  config.device = "gpu";
  config.timeout_ms = options.timeout_ms;
  Clock::time_point begin = Clock::now();
  arc(arcInit(&config), "arcInit");
  std::printf("rank %d: attached after %.1f ms\n", options.rank, microseconds_since(begin) / 1000);
  begin = Clock::now();
  ClientComm comm(exchange_id(options.id_file));
  std::printf("rank %d: in the communicator after %.1f ms\n", options.rank,
              microseconds_since(begin) / 1000);
  std::fflush(stdout);
  NodeRank rank(comm);
  std::vector<Row> rows;
  if (options.rank == 0)
    std::printf("%12s %12s %12s %12s %10s\n", "bytes", "median us", "least us", "in a row us",
                "GB/s");
  int seed = 1;
  for (const std::uint64_t bytes : options.sizes) {
    rows.push_back(rank.run(bytes, seed));
    seed += 2;
    const Row& row = rows.back();
    if (options.rank == 0) {
      std::printf("%12llu %12.1f %12.1f %12.1f %10.2f\n",
                  static_cast<unsigned long long>(row.bytes), row.median_us, row.least_us,
                  row.in_a_row_us, static_cast<double>(row.bytes) / row.in_a_row_us / 1000);
    } else {
      std::printf("rank %d: verified %llu bytes\n", options.rank,
                  static_cast<unsigned long long>(bytes));
    }
    std::fflush(stdout);
  }
  if (options.rank == 0) write_json(rows);
  comm.leave();
  arc(arcFinalize(), "arcFinalize");
  std::printf("rank %d of %d: all is well\n", options.rank, options.ranks);
  return 0;
}

}  // namespace
}  // namespace arcomm::gpu

int main(int argc, char** argv) {
  return arcomm::gpu::run(argc, argv);
}
