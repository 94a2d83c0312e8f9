// One rank of a communicator of GPUs on several nodes, each with a daemon of its own: random data,
// poisoned outputs, results compared bit for bit, then times (node_sums.h).
//   node_rank --rank R --ranks N --id-file PATH --runtime-dir DIR --gpu G [--sizes 1k,...]
//     [--dtype f16|bf16|f32] [--codec NAME] [--memory arc|cuda] [--nccl PATH]
// With --nccl it is NCCL, from that libnccl.so.2, that sums, and no daemon takes part: the peer of
// the same table. Rank 0 prints a row for each size; with NODE_RANK_JSON=path it writes them there,
// too. Exit code 1 and a sentence on stderr where anything is not as it must be.
#include <cuda_runtime_api.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "client/include/arclient.h"
#include "tests/gpu/nodes/nccl_node.h"
#include "tests/gpu/nodes/node_sums.h"
#include "tests/gpu/service/client/client_comm.h"
#include "tests/gpu/service/client/client_id.h"
#include "tests/gpu/service/client/client_options.h"

namespace arcomm::gpu {
namespace {

using Clock = std::chrono::steady_clock;

double milliseconds_since(Clock::time_point begin) {
  return std::chrono::duration<double, std::milli>(Clock::now() - begin).count();
}

void run_sizes(const Summing& summing) {
  NodeSums sums(summing);
  std::vector<SumTimes> rows;
  if (options.rank == 0) {
    std::printf("%12s %12s %12s %12s %10s   %s\n", "bytes", "median us", "least us", "in a row us",
                "GB/s", summing.library.c_str());
  }
  int seed = 1;
  for (const std::uint64_t bytes : options.sizes) {
    rows.push_back(sums.run(bytes, seed));
    seed += 2;
    const SumTimes& row = rows.back();
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
  const char* const path = std::getenv("NODE_RANK_JSON");
  if (options.rank == 0 && path != nullptr) write_json(path, summing.library, rows);
}

void run_arcommd() {
  arcConfig_t config = ARC_CONFIG_INITIALIZER;
  config.runtime_dir = options.runtime_dir.empty() ? nullptr : options.runtime_dir.c_str();
  config.device = "gpu";
  config.timeout_ms = options.timeout_ms;
  Clock::time_point begin = Clock::now();
  arc(arcInit(&config), "arcInit");
  std::printf("rank %d: attached after %.1f ms\n", options.rank, milliseconds_since(begin));
  begin = Clock::now();
  ClientComm comm(exchange_id(options.id_file));
  std::printf("rank %d: in the communicator after %.1f ms\n", options.rank,
              milliseconds_since(begin));
  std::fflush(stdout);
  run_sizes({.library = "arcommd",
             .send = comm.send(),
             .recv = comm.recv(),
             .stream = comm.stream(),
             .all_reduce =
                 [&comm](const void* send, void* recv, std::uint64_t count) {
                   comm.all_reduce(send, recv, count, comm.stream());
                 },
             .settle = [&comm](const char* what) { comm.settle(what); }});
  comm.leave();
  arc(arcFinalize(), "arcFinalize");
}

int run(int argc, char** argv) {
  parse(argc, argv);
  cuda(cudaSetDevice(options.gpu), "cudaSetDevice");
  if (options.nccl.empty()) {
    run_arcommd();
  } else {
    NcclNode nccl(options.nccl);
    run_sizes(nccl.summing());
  }
  std::printf("rank %d of %d: all is well\n", options.rank, options.ranks);
  return 0;
}

}  // namespace
}  // namespace arcomm::gpu

int main(int argc, char** argv) {
  return arcomm::gpu::run(argc, argv);
}
