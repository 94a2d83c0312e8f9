// arcommd between nodes: a rank process on each of several daemons, by the public C interface, on
// memory from arcMemAlloc.
//   nodes_peer --runtime DIR,DIR,... --sizes 1K,1M [--dtype ...] [--codec ...]
// with a rank for each folder; a folder that is named again has as many ranks.
#include <stdlib.h>
#include <sys/mman.h>

#include <algorithm>
#include <limits>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

#include "client/include/arclient.h"
#include "tests/bench/peer_rank.h"

namespace arcomm::bench {
namespace {

void need(arcResult_t result, const char* what) {
  if (result != arcSuccess)
    throw std::runtime_error(std::string(what) + ": " + arcGetLastError(nullptr));
}

void run_rank(const PeerOptions& options, const arctl::RankBoard& board, arcUniqueId* shared_id,
              Rank rank, const std::string& runtime_dir) {
  arcConfig_t config = ARC_CONFIG_INITIALIZER;
  config.runtime_dir = runtime_dir.c_str();
  need(arcInit(&config), "arcInit");
  const PeerRank without_memory{"arcommd", options, board, rank, nullptr, nullptr};
  if (rank == 0) need(arcGetUniqueId(shared_id), "arcGetUniqueId");
  without_memory.meet();
  arcComm_t comm = nullptr;
  need(arcCommInitRank(&comm, options.ranks, *shared_id, rank), "arcCommInitRank");
  const std::uint64_t largest = *std::max_element(options.sizes.begin(), options.sizes.end());
  void *send = nullptr, *recv = nullptr;
  need(arcMemAlloc(&send, largest), "arcMemAlloc");
  need(arcMemAlloc(&recv, largest), "arcMemAlloc");
  const PeerRank run{"arcommd",
                     options,
                     board,
                     rank,
                     static_cast<std::byte*>(send),
                     static_cast<std::byte*>(recv)};
  arcAllReduceConfig_t coded = ARC_ALL_REDUCE_CONFIG_INITIALIZER;
  coded.codec = static_cast<arcCodec_t>(options.codec);
  const arcDataType_t dtype = options.dtype == DType::Float32 ? arcFloat32 : arcBfloat16;
  for (const std::uint64_t bytes : options.sizes) {
    const std::uint64_t count = bytes / size_of(options.dtype);
    const arctl::Pattern pattern(options.dtype, ReduceOp::Sum, options.ranks, options.codec);
    pattern.fill(run.send, count, rank);
    double best = std::numeric_limits<double>::infinity();
    measure(run, text_of(options.codec).data(), bytes, best, [&] {
      need(arcAllReduceWith(send, recv, count, dtype, arcSum, &coded, comm, nullptr),
           "arcAllReduceWith");
    });
  }
  need(arcCommDestroy(comm), "arcCommDestroy");
  need(arcFinalize(), "arcFinalize");
}

int run(int argc, char** argv) {
  std::vector<std::string> folders;
  std::vector<char*> others{argv[0]};
  for (int i = 1; i < argc; ++i) {
    if (std::string(argv[i]) == "--runtime" && i + 1 < argc) {
      std::istringstream list(argv[++i]);
      for (std::string folder; std::getline(list, folder, ',');) folders.push_back(folder);
    } else {
      others.push_back(argv[i]);
    }
  }
  PeerOptions options = parse_peer_options(static_cast<int>(others.size()), others.data());
  options.ranks = static_cast<int>(folders.size());
  if (options.codec != Codec::None && folders.size() > 2) {
    std::fprintf(stderr, "nodes_peer: checks a codec's results between two daemons alone\n");
    return 2;
  }
  if (options.sizes.empty() || folders.size() < 2 ||
      (options.dtype != DType::Float32 && options.dtype != DType::BFloat16)) {
    std::fprintf(stderr,
                 "nodes_peer: wants --runtime with a folder for each of two ranks or more, "
                 "--sizes, and float32 "
                 "or bfloat16\n");
    return 2;
  }
  Result<arctl::RankBoard> board = arctl::RankBoard::create(options.ranks);
  void* const page = ::mmap(nullptr, sizeof(arcUniqueId), PROT_READ | PROT_WRITE,
                            MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (!board || page == MAP_FAILED) {
    std::fprintf(stderr, "nodes_peer: cannot set up\n");
    return 1;
  }
  return run_ranks("nodes_peer", options, *board, [&](Rank rank) {
    run_rank(options, *board, static_cast<arcUniqueId*>(page), rank,
             folders[static_cast<std::size_t>(rank)]);
  });
}

}  // namespace
}  // namespace arcomm::bench

int main(int argc, char** argv) {
  return arcomm::bench::run(argc, argv);
}
