#include "tests/gpu/faults/fault_work.h"

#include <algorithm>
#include <thread>

#include "tests/gpu/service/client/client_options.h"
#include "tests/gpu/service/client/pattern_memory.h"

namespace arcomm::gpu {
namespace {

using std::chrono::milliseconds;

constexpr int kCalls = 20;    // of a step, back to back
constexpr int kInAGraph = 5;  // of them
constexpr milliseconds kRebuildFor{30'000};
// A GPU that a process uses for the first time, as after a daemon's end, is waited for.
constexpr milliseconds kFirstUse{5'000};

milliseconds timeout() {
  return milliseconds(options.timeout_ms);
}

std::string words_of(std::uint64_t bytes, bool in_a_graph) {
  return std::to_string(bytes) + " bytes " + (in_a_graph ? "in a graph" : "on a stream");
}

}  // namespace

milliseconds stopped_for{};

milliseconds ms_since(FaultClock::time_point begin) {
  return std::chrono::duration_cast<milliseconds>(FaultClock::now() - begin);
}

void expect_in_time(const char* what, FaultClock::time_point begin, milliseconds more) {
  const milliseconds took = ms_since(begin);
  if (took <= timeout() + kCallLate + more + stopped_for) return;
  die(std::string(what) + " lasted " + std::to_string(took.count()) + " ms, with a timeout of " +
      std::to_string(options.timeout_ms) + " ms");
}

std::string Failure::text() const {
  return during + ", after " + std::to_string(took.count()) + " ms: " + arcGetErrorString(code) +
         " (" + arcGetReasonString(info.reason) + "), rank " + std::to_string(info.rank) + ": " +
         info.message +
         (stream == cudaSuccess ? "" : std::string("; the stream: ") + cudaGetErrorName(stream));
}

arcErrorInfo_t last_error() {
  arcErrorInfo_t info{};
  info.struct_size = sizeof(info);
  arc(arcGetLastErrorInfo(&info), "arcGetLastErrorInfo");
  return info;
}

std::optional<Failure> failure_of(arcComm_t comm, milliseconds patience) {
  const FaultClock::time_point begin = FaultClock::now();
  for (;;) {
    Failure seen;
    const arcResult_t asked =
        in_time("arcCommGetAsyncError", [&] { return arcCommGetAsyncError(comm, &seen.code); });
    if (asked != arcSuccess) seen.code = asked;
    if (seen.code != arcSuccess) {
      seen.info = last_error();
      return seen;
    }
    if (ms_since(begin) >= patience) return std::nullopt;
    std::this_thread::sleep_for(milliseconds(1));
  }
}

cudaError_t end_of(cudaStream_t stream, FaultClock::time_point begin, const std::string& what) {
  for (;;) {
    const cudaError_t state = cudaStreamQuery(stream);
    if (state != cudaErrorNotReady) return state;
    const milliseconds took = ms_since(begin);
    if (took > timeout() + kStreamLate + stopped_for)
      die("a stream was not idle " + std::to_string(took.count()) + " ms after " + what);
    std::this_thread::yield();
  }
}

FaultWork::FaultWork(ClientComm& comm) : comm_(comm), pattern_(make_pattern(0)) {
  const std::uint64_t most = *std::ranges::max_element(options.sizes);
  cuda(cudaMallocHost(reinterpret_cast<void**>(&host_), most), "pinned memory");
  upload(pattern_, comm_.send(), most / size_of(options.dtype), comm_.stream());
  capture();
}

FaultWork::~FaultWork() {
  let_go();
  cudaFreeHost(host_);
}

void FaultWork::capture() {
  for (const std::uint64_t bytes : options.sizes) {
    graphs_.push_back(comm_.captured([&] {
      for (int i = 0; i < kInAGraph; ++i)
        comm_.all_reduce(comm_.send(), comm_.recv(), bytes / size_of(options.dtype),
                         comm_.stream());
    }));
  }
}

void FaultWork::let_go() {
  for (cudaGraphExec_t graph : graphs_) cudaGraphExecDestroy(graph);
  graphs_.clear();
}

std::optional<Failure> FaultWork::told(FaultClock::time_point begin, const std::string& during,
                                       cudaError_t stream) {
  // Whoever has seen a stream fail hears why by the deadline at the latest.
  std::optional<Failure> failure =
      failure_of(comm_.handle(), stream == cudaSuccess ? milliseconds(0) : timeout());
  if (!failure && stream == cudaSuccess) return std::nullopt;
  if (!failure) failure.emplace();
  failure->took = ms_since(begin);
  failure->during = during;
  failure->stream = stream;
  return failure;
}

std::optional<Failure> FaultWork::step(std::uint64_t bytes, Way way) {
  const std::string what = words_of(bytes, way == Way::Graph);
  const std::uint64_t count = bytes / size_of(options.dtype);
  cudaError_t state = cudaMemsetAsync(comm_.recv(), 0xff, bytes, comm_.stream());
  const FaultClock::time_point begin = FaultClock::now();
  if (way == Way::Graph) {
    const std::size_t graph =
        static_cast<std::size_t>(std::ranges::find(options.sizes, bytes) - options.sizes.begin());
    for (int i = 0; i < kCalls / kInAGraph && state == cudaSuccess; ++i)
      state = cudaGraphLaunch(graphs_[graph], comm_.stream());
  }
  for (int i = 0; way == Way::Stream && i < kCalls; ++i) {
    const arcResult_t called = in_time("arcAllReduce", [&] {
      return arcAllReduce(comm_.send(), comm_.recv(), count,
                          static_cast<arcDataType_t>(options.dtype), arcSum, comm_.handle(),
                          comm_.stream());
    });
    if (called == arcSuccess) continue;
    Failure failure{.code = called, .info = last_error(), .took = ms_since(begin), .during = what};
    failure.stream = end_of(comm_.stream(), begin, what);
    return failure;
  }
  if (state == cudaSuccess) state = end_of(comm_.stream(), begin, what);
  if (std::optional<Failure> failure = told(begin, what, state)) return failure;
  longest_ = std::max(longest_, ms_since(begin));
  const FaultClock::time_point copied = FaultClock::now();
  cuda(cudaMemcpyAsync(host_, comm_.recv(), bytes, cudaMemcpyDeviceToHost, comm_.stream()),
       "downloading");
  state = end_of(comm_.stream(), copied, "downloading");
  if (std::optional<Failure> failure = told(copied, what, state)) return failure;
  if (const auto wrong = difference(pattern_, host_, count)) die(what + ": " + *wrong);
  return std::nullopt;
}

std::optional<Failure> FaultWork::round() {
  for (const std::uint64_t bytes : options.sizes) {
    for (const Way way : {Way::Stream, Way::Graph}) {
      if (std::optional<Failure> failure = step(bytes, way)) return failure;
    }
  }
  return std::nullopt;
}

void FaultWork::rounds(int count) {
  for (int i = 0; i < count; ++i) {
    if (const std::optional<Failure> failure = round()) die("in " + failure->text());
  }
}

std::optional<Failure> FaultWork::until_failure(milliseconds limit) {
  const FaultClock::time_point begin = FaultClock::now();
  while (ms_since(begin) < limit) {
    if (std::optional<Failure> failure = round()) return failure;
  }
  return std::nullopt;
}

void FaultWork::expect_replays_to_end() {
  for (cudaGraphExec_t graph : graphs_) {
    const FaultClock::time_point begin = FaultClock::now();
    cuda(cudaGraphLaunch(graph, comm_.stream()), "replaying a graph after the end");
    cuda(end_of(comm_.stream(), begin, "a replay after the end"), "a replay after the end");
    if (ms_since(begin) > kCallLate)
      die("a graph whose communicator is over ran for " + std::to_string(ms_since(begin).count()) +
          " ms");
  }
  if (cudaStreamQuery(comm_.other()) != cudaSuccess) die("the other stream is not idle");
}

void FaultWork::rebuild() {
  const FaultClock::time_point begin = FaultClock::now();
  let_go();
  for (;;) {
    const arcResult_t built = in_time(
        "arcCommRebuild", [&] { return arcCommRebuild(comm_.handle()); }, kFirstUse);
    if (built == arcSuccess) break;
    const arcErrorInfo_t why = last_error();
    if (ms_since(begin) >= kRebuildFor)
      die("no rebuild in " + std::to_string(ms_since(begin).count()) + " ms: " + why.message);
    std::this_thread::sleep_for(milliseconds(20));
  }
  capture();
}

}  // namespace arcomm::gpu
