// What client_rank was asked for, and how it gives up. One process, one rank: the options are the
// process's own, set once before anything else runs.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <string>
#include <vector>

#include "client/include/arclient.h"
#include "proto/types.h"

namespace arcomm::gpu {

struct Options {
  int rank = -1, ranks = 0, gpu = -1;
  std::string id_file, runtime_dir;
  std::string nccl;  // of node_rank: libnccl.so.2, in libarclient's place
  std::vector<std::uint64_t> sizes;
  DType dtype = DType::BFloat16;
  Codec codec = Codec::None;  // of node_rank
  bool is_arc_memory = true, verify = false, graph_only = false, loop = false, faults = false;
  bool times_calls = false;  // of the host, in arcAllReduce
  std::uint64_t timeout_ms = 10'000;
  std::uint64_t hold_seconds = 0;                         // to keep a communicator and call nothing
  std::uint64_t soak_seconds = 0, replays = 0, seed = 1;  // 0: no limit of that kind

  bool soak() const { return soak_seconds != 0 || replays != 0; }
};

extern Options options;
// Of a soak; 0 before the first. die() names it.
extern std::uint64_t current_replay;

// From the command line. A sentence on stderr and exit code 1 where it makes no sense.
void parse(int argc, char** argv);

// Say what was wrong, of which rank, and end the process with exit code 1.
[[noreturn]] void die(const std::string& what);
void cuda(cudaError_t result, const char* what);
void arc(arcResult_t result, const char* what);

}  // namespace arcomm::gpu
