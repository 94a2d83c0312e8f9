#include "tests/gpu/service/client/client_faults.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdlib>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "tests/gpu/service/client/client_options.h"

namespace arcomm::gpu {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr milliseconds kHeardWithin{1000};  // of what others did
constexpr milliseconds kLate{400};          // past the deadline: the promise's 100, and a busy host
constexpr unsigned char kUntouched = 0xa5;

struct Outcome {
  arcResult_t code = arcSuccess;
  arcErrorInfo_t info{};
};

// Waits until the communicator says that it has failed.
Outcome failure_of(ClientComm& comm, const char* what) {
  const Clock::time_point deadline = Clock::now() + kHeardWithin;
  Outcome out;
  do {
    arc(arcCommGetAsyncError(comm.handle(), &out.code), "arcCommGetAsyncError");
    if (out.code != arcSuccess) {
      out.info.struct_size = sizeof(out.info);
      arc(arcGetLastErrorInfo(&out.info), "arcGetLastErrorInfo");
      return out;
    }
    std::this_thread::sleep_for(milliseconds(1));
  } while (Clock::now() < deadline);
  die(std::string(what) + " went unnoticed");
}

// code: of those who waited; who did not come, or was not first, may hear of the end only.
void expect(const Outcome& out, arcResult_t code, arcReason_t reason, int culprit,
            const std::string& what) {
  const bool is_code = out.code == code || out.code == arcAborted;
  const bool is_rank = culprit < 0 ? out.info.rank >= 0 : out.info.rank == culprit;
  if (is_code && out.info.reason == reason && is_rank) return;
  die(what + " was told as code " + std::to_string(out.code) + ", reason " +
      std::to_string(out.info.reason) + ", rank " + std::to_string(out.info.rank) + ": " +
      out.info.message);
}

void poison(ClientComm& comm, std::uint64_t bytes) {
  cuda(cudaMemsetAsync(comm.recv(), kUntouched, bytes, comm.stream()), "poisoning");
  comm.meet();
  comm.settle("poisoning");
}

void expect_all(ClientComm& comm, std::uint64_t bytes, unsigned char value,
                const std::string& otherwise) {
  std::vector<unsigned char> seen(bytes);
  cuda(cudaMemcpy(seen.data(), comm.recv(), bytes, cudaMemcpyDeviceToHost), "downloading");
  if (std::ranges::any_of(seen, [value](unsigned char byte) { return byte != value; }))
    die(otherwise);
}

void expect_untouched(ClientComm& comm, std::uint64_t bytes, const std::string& what) {
  expect_all(comm, bytes, kUntouched, what + " had touched its output");
}

void rebuild(ClientComm& comm) {
  arc(arcCommRebuild(comm.handle()), "arcCommRebuild");
}

// The first rank asks for `firsts_count` elements, the others for `bytes`.
void disagree(ClientComm& comm, std::uint64_t bytes, std::uint64_t firsts_count) {
  const std::string what = "a disagreement about " + std::to_string(bytes) + " bytes and " +
                           std::to_string(firsts_count) + " elements";
  poison(comm, bytes);
  const std::uint64_t count = options.rank == 0 ? firsts_count : bytes / size_of(options.dtype);
  comm.all_reduce(comm.send(), comm.recv(), count, comm.stream());
  const Clock::time_point begin = Clock::now();
  comm.synchronize(what.c_str());
  if (Clock::now() - begin > kHeardWithin) die(what + " was told late");
  expect(failure_of(comm, what.c_str()), arcFailedPrecondition, arcReasonMismatch, -1, what);
  expect_untouched(comm, bytes, what);
  rebuild(comm);
}

void stay_away(ClientComm& comm, std::uint64_t bytes) {
  const std::string what = "a rank that did not come to " + std::to_string(bytes) + " bytes";
  poison(comm, bytes);
  const int last = options.ranks - 1;
  const Clock::time_point begin = Clock::now();
  if (options.rank != last) {
    comm.all_reduce(comm.send(), comm.recv(), bytes / size_of(options.dtype), comm.stream());
    comm.synchronize(what.c_str());
    const auto took = std::chrono::duration_cast<milliseconds>(Clock::now() - begin);
    const milliseconds patience(options.timeout_ms);
    if (took < patience || took > patience + kLate)
      die(what + " ended after " + std::to_string(took.count()) + " ms");
  } else {
    std::this_thread::sleep_for(milliseconds(options.timeout_ms));
  }
  expect(failure_of(comm, what.c_str()), arcDeadlineExceeded, arcReasonTimeout, last, what);
  expect_untouched(comm, bytes, what);
  rebuild(comm);
}

// Two graphs of one shape: replayed in one order by all, between calls, they are served; where one
// rank replays the one and the others the other, nobody's sums are mixed.
void reorder(ClientComm& comm, std::uint64_t bytes) {
  const std::string what = "graphs of " + std::to_string(bytes) + " bytes in different orders";
  const auto call = [&] {
    comm.all_reduce(comm.send(), comm.recv(), bytes / size_of(options.dtype), comm.stream());
  };
  const std::array<cudaGraphExec_t, 2> graphs{comm.captured(call), comm.captured(call)};
  const auto replay = [&](std::size_t which) {
    cuda(cudaGraphLaunch(graphs[which], comm.stream()), "cudaGraphLaunch");
  };
  for (const std::size_t which : {0, 1, 1, 0, 0, 1}) {
    replay(which);
    if (which == 1) call();
  }
  comm.settle("graphs in one order");
  poison(comm, bytes);
  const Clock::time_point begin = Clock::now();
  replay(options.rank == 0 ? 0 : 1);
  comm.synchronize(what.c_str());
  if (Clock::now() - begin > kHeardWithin) die(what + " were told late");
  expect(failure_of(comm, what.c_str()), arcFailedPrecondition, arcReasonReordered, -1, what);
  expect_untouched(comm, bytes, what);
  for (cudaGraphExec_t graph : graphs) cuda(cudaGraphExecDestroy(graph), "cudaGraphExecDestroy");
  rebuild(comm);
}

// Codecs between GPUs are in-stream. Where nothing is, the rank that asks is told so before
// anything is registered or started; elsewhere nothing goes wrong. The communicator goes on either
// way.
void ask_for_a_codec(ClientComm& comm, std::uint64_t bytes) {
  const std::string what = "a codec for " + std::to_string(bytes) + " bytes";
  cuda(cudaMemsetAsync(comm.send(), 0, bytes, comm.stream()), "clearing");
  poison(comm, bytes);
  arcAllReduceConfig_t config = ARC_ALL_REDUCE_CONFIG_INITIALIZER;
  config.codec = arcCodecQ4;
  Outcome out;
  out.code = arcAllReduceWith(comm.send(), comm.recv(), bytes / size_of(options.dtype),
                              static_cast<arcDataType_t>(options.dtype), arcSum, &config,
                              comm.handle(), comm.stream());
  out.info.struct_size = sizeof(out.info);
  arc(arcGetLastErrorInfo(&out.info), "arcGetLastErrorInfo");
  const char* post = std::getenv("ARCOMM_POST");
  const bool is_served = post == nullptr || std::string_view(post) != "memops";
  const bool is_refused = out.code == arcInvalidArgument && out.info.reason == arcReasonUnsupported;
  if (is_served ? out.code != arcSuccess : !is_refused)
    die(what + " was answered with code " + std::to_string(out.code) + ": " + out.info.message);
  comm.meet();
  comm.settle(what.c_str());
  // The sum of zeros is zero in every codec.
  expect_all(comm, bytes, is_served ? 0 : kUntouched,
             what + (is_served ? " did not reach its output" : " had touched its output"));
}

}  // namespace

void expect_faults(ClientComm& comm) {
  for (const std::uint64_t bytes : options.sizes) {
    ask_for_a_codec(comm, bytes);
    disagree(comm, bytes, bytes / size_of(options.dtype) - 1);
    stay_away(comm, bytes);
    reorder(comm, bytes);
  }
  // On paths that do not meet, where the sizes are far enough apart.
  const auto [least, most] = std::ranges::minmax(options.sizes);
  disagree(comm, most, 0);
  if (least != most) disagree(comm, most, least / size_of(options.dtype));
  comm.meet();
  comm.settle("the operation after the faults");
}

}  // namespace arcomm::gpu
