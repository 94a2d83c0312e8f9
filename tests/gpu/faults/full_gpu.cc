// Fault 45: an innocent kernel of one process fills a GPU while others come and work.
// run_full_gpu.sh brings both together, and asks the daemon how long its worker's turns were.
//   full_gpu fill --seconds S [--gpu G]
//     a client of CUDA alone: a kernel that leaves no room for another runs for S seconds. Says
//     "full" when all of it runs.
//   full_gpu work [--rounds N] [--timeout-ms T] [--runtime-dir DIR] [--gpu G]
//                 [--rank R --ranks N --id-file F]
//     attaches, and N times allocates, registers, forms a communicator of one rank, or of N
//     processes that meet by F, sums in it, and gives all back. Each step ends well, or by its
//     deadline alone (Unavailable, DeadlineExceeded, after T at the earliest and a second more at
//     the latest), and says how long it took.
// Exit code 1 and a sentence on stderr where anything is not as it must be.
#include <cuda_runtime_api.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "client/include/arclient.h"
#include "tests/gpu/faults/fault_kernels.h"
#include "tests/gpu/service/client/client_id.h"
#include "tests/gpu/service/client/client_options.h"

namespace arcomm::gpu {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr std::size_t kCount = 1 << 18;  // floats
constexpr std::size_t kBytes = kCount * sizeof(float);
constexpr milliseconds kSlack{1'000};
constexpr milliseconds kFullWithin{10'000};

// Beside `options`, of which it has the rank, the ranks, the GPU and the files.
struct Wanted {
  std::string role;
  double seconds = 5;
  int rounds = 1;
  milliseconds timeout{60'000};
};

long since(Clock::time_point begin) {
  return static_cast<long>(std::chrono::duration_cast<milliseconds>(Clock::now() - begin).count());
}

Wanted parse_words(int argc, char** argv) {
  Wanted wanted;
  options.rank = options.gpu = 0;
  options.ranks = 1;
  if (argc < 2) die("name a role: fill or work");
  wanted.role = argv[1];
  for (int i = 2; i + 1 < argc; i += 2) {
    const std::string_view name = argv[i];
    if (name == "--seconds") {
      wanted.seconds = std::atof(argv[i + 1]);
    } else if (name == "--rounds") {
      wanted.rounds = std::atoi(argv[i + 1]);
    } else if (name == "--timeout-ms") {
      wanted.timeout = milliseconds(std::atol(argv[i + 1]));
    } else if (name == "--runtime-dir") {
      options.runtime_dir = argv[i + 1];
    } else if (name == "--gpu") {
      options.gpu = std::atoi(argv[i + 1]);
    } else if (name == "--rank") {
      options.rank = std::atoi(argv[i + 1]);
    } else if (name == "--ranks") {
      options.ranks = std::atoi(argv[i + 1]);
    } else if (name == "--id-file") {
      options.id_file = argv[i + 1];
    } else {
      die("unknown option " + std::string(name));
    }
  }
  return wanted;
}

void fill(const Wanted& wanted) {
  cudaDeviceProp gpu{};
  cuda(cudaGetDeviceProperties(&gpu, options.gpu), "asking for the GPU's properties");
  unsigned* started = nullptr;
  cuda(cudaHostAlloc(reinterpret_cast<void**>(&started), sizeof(unsigned), cudaHostAllocMapped),
       "allocating host memory");
  *started = 0;
  cudaStream_t stream = nullptr;
  cuda(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "creating a stream");
  const auto ns = static_cast<std::uint64_t>(wanted.seconds * 1e9);
  cuda(hold_processors(gpu.multiProcessorCount, ns, started, stream), "filling the GPU");
  const auto all = static_cast<unsigned>(gpu.multiProcessorCount * kBlocksPerProcessor);
  const auto begin = Clock::now();
  while (__atomic_load_n(started, __ATOMIC_ACQUIRE) < all) {
    if (Clock::now() - begin > kFullWithin)
      die("only " + std::to_string(__atomic_load_n(started, __ATOMIC_ACQUIRE)) + " of " +
          std::to_string(all) + " blocks have found room");
    std::this_thread::sleep_for(milliseconds(1));
  }
  std::printf("full: %u blocks for %.1f s\n", all, wanted.seconds);
  std::fflush(stdout);
  cuda(cudaStreamSynchronize(stream), "the kernel that fills the GPU");
  std::printf("ended after %ld ms\n", since(begin));
}

class Worker {
 public:
  explicit Worker(const Wanted& wanted) : wanted_(wanted) {}

  void run() {
    arcConfig_t config = ARC_CONFIG_INITIALIZER;
    config.runtime_dir = options.runtime_dir.empty() ? nullptr : options.runtime_dir.c_str();
    config.device = "gpu";
    config.timeout_ms = static_cast<std::uint64_t>(wanted_.timeout.count());
    cuda(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "creating a stream");
    if (!step("attach", [&] { return arcInit(&config); })) return;
    for (int round = 0; round < wanted_.rounds; ++round) work(std::to_string(round));
    arcFinalize();
  }

 private:
  // Whether it ended well; by its deadline it may end, too.
  bool step(const char* what, const std::function<arcResult_t()>& call) {
    const auto begin = Clock::now();
    const arcResult_t result = call();
    const long took = since(begin);
    const char* const why = result == arcSuccess ? "" : arcGetLastError(nullptr);
    std::printf("%s: %ld ms%s%s\n", what, took, result == arcSuccess ? "" : ": ", why);
    std::fflush(stdout);
    if (result == arcSuccess) return true;
    const std::string said = std::string(what) + " after " + std::to_string(took) + " ms: " + why;
    const long deadline = static_cast<long>(wanted_.timeout.count());
    if (result != arcUnavailable && result != arcDeadlineExceeded) die(said);
    // What is held for its sake is answered a little before its caller stops waiting.
    if (took < deadline - deadline / 10 - 100) die("before its deadline: " + said);
    if (took > deadline + kSlack.count()) die("long after its deadline: " + said);
    return false;
  }

  // Deadlines of ranks that call together are together.
  static void meet(const std::string& where) {
    if (options.ranks > 1) meet_by_files(options.id_file + "." + where);
  }

  void work(const std::string& round) {
    void* send = nullptr;
    void* own = nullptr;
    arcComm_t comm = nullptr;
    arcUniqueId id{};
    if (options.ranks > 1) id = exchange_id(options.id_file + "." + round);
    cuda(cudaMalloc(&own, kBytes), "allocating GPU memory");
    const bool has_send = step("allocate", [&] { return arcMemAlloc(&send, kBytes); });
    const bool is_registered = step("register", [&] { return arcMemRegister(own, kBytes); });
    meet(round + ".join");
    const bool has_comm = step("join", [&] {
      const arcResult_t named = options.ranks > 1 ? arcSuccess : arcGetUniqueId(&id);
      return named == arcSuccess ? arcCommInitRank(&comm, options.ranks, id, options.rank) : named;
    });
    meet(round + ".sum");
    if (has_send && is_registered && has_comm) sum(send, own, comm);
    meet(round + ".leave");  // whoever cannot sum is waited for, and does not leave before
    if (has_comm) step("leave", [&] { return arcCommDestroy(comm); });
    if (is_registered) step("deregister", [&] { return arcMemDeregister(own); });
    if (has_send) step("free", [&] { return arcMemFree(send); });
    // cudaFree waits for whatever runs: the process's end lets go of it.
  }

  void sum(void* send, void* recv, arcComm_t comm) {
    std::vector<float> values(kCount);
    for (std::size_t i = 0; i < kCount; ++i) values[i] = static_cast<float>(i % 1021);
    cuda(cudaMemcpyAsync(send, values.data(), kBytes, cudaMemcpyHostToDevice, stream_),
         "copying inputs");
    const bool called = step(
        "sum", [&] { return arcAllReduce(send, recv, kCount, arcFloat32, arcSum, comm, stream_); });
    if (!called) return;
    // Behind whatever fills the GPU: not a call of ours, and so without a deadline of ours.
    const auto begin = Clock::now();
    cuda(cudaStreamSynchronize(stream_), "waiting for the stream");
    arcResult_t state = arcSuccess;
    arcCommGetAsyncError(comm, &state);
    std::vector<float> results(kCount);
    cuda(cudaMemcpyAsync(results.data(), recv, kBytes, cudaMemcpyDeviceToHost, stream_),
         "copying results");
    cuda(cudaStreamSynchronize(stream_), "waiting for the results");
    std::printf("in the stream: %ld ms%s%s\n", since(begin), state == arcSuccess ? "" : ": ",
                state == arcSuccess ? "" : arcGetErrorString(state));
    std::fflush(stdout);
    for (float& value : values) value *= static_cast<float>(options.ranks);
    if (state == arcSuccess && results != values) die("the sum is not as many times the input");
    if (state != arcSuccess && state != arcDeadlineExceeded)
      die("the operation failed, and not in time");
  }

  const Wanted wanted_;
  cudaStream_t stream_ = nullptr;
};

}  // namespace
}  // namespace arcomm::gpu

int main(int argc, char** argv) {
  using namespace arcomm::gpu;
  const Wanted wanted = parse_words(argc, argv);
  cuda(cudaSetDevice(options.gpu), "cudaSetDevice");
  if (wanted.role == "fill") {
    fill(wanted);
  } else if (wanted.role == "work") {
    Worker(wanted).run();
  } else {
    die("unknown role " + wanted.role);
  }
  return 0;
}
