#include "tests/gpu/faults/fault_cases.h"

#include <algorithm>
#include <cstdio>
#include <string>
#include <thread>
#include <vector>

#include "tests/gpu/faults/fault_expect.h"
#include "tests/gpu/faults/fault_kernels.h"
#include "tests/gpu/faults/fault_work.h"
#include "tests/gpu/service/client/client_id.h"
#include "tests/gpu/service/client/client_options.h"

namespace arcomm::gpu {
namespace {

using std::chrono::milliseconds;

// For the other ranks to be as far as this one.
constexpr milliseconds kMoment{100};
// Between two ranks; between more, what is longer than 2 MB is launched. The sizes that are asked
// for are small or large for either.
constexpr std::uint64_t kMostInStream = 16U << 20;
// Two aborts, each a few calls to the daemon, and what waited has left its stream.
constexpr milliseconds kAbortedWithin{250};
constexpr int kHoards = 200;
// Of the GPU's memory: what else comes and goes there.
constexpr std::size_t kNoLeak = 32U << 20;

// All ranks send the same: floats of two bytes, 1.06 each.
constexpr int kByte = 0x3c;

void expect_same_sum(const void* memory, std::uint64_t count) {
  if (options.dtype != DType::Float16 || (options.ranks != 2 && options.ranks != 4)) return;
  std::vector<std::uint16_t> seen(count);
  cuda(cudaMemcpy(seen.data(), memory, count * sizeof(seen[0]), cudaMemcpyDeviceToHost),
       "downloading");
  // A power of two more.
  const std::uint16_t wanted = options.ranks == 2 ? 0x403c : 0x443c;
  const auto wrong = std::ranges::find_if(seen, [wanted](auto one) { return one != wanted; });
  if (wrong != seen.end())
    die("element " + std::to_string(wrong - seen.begin()) + " is wrong, and was told as right");
}

void report(const std::string& numbers, const std::string& what) {
  std::printf("case %s: %s\n", numbers.c_str(), what.c_str());
  std::fflush(stdout);
}

int last_rank() {
  return options.ranks - 1;
}

void reduce(ClientComm& comm, std::uint64_t bytes, cudaStream_t stream) {
  comm.all_reduce(comm.send(), comm.recv(), bytes / size_of(options.dtype), stream);
}

// The communicator has ended, or does so now.
Failure failure_now(ClientComm& comm, FaultClock::time_point begin, const std::string& what) {
  std::optional<Failure> failure = failure_of(comm.handle(), milliseconds(1'000));
  if (!failure) die(what + " went unnoticed");
  failure->took = ms_since(begin);
  failure->during = what;
  return *failure;
}

// Milliseconds.
long abort_both(ClientComm& one, ClientComm& other, const std::string& what) {
  const FaultClock::time_point begin = FaultClock::now();
  for (ClientComm* comm : {&one, &other})
    arc(in_time("arcCommAbort", [&] { return arcCommAbort(comm->handle()); }), "arcCommAbort");
  cuda(end_of(one.stream(), begin, what), "a stream after two aborts");
  const milliseconds took = ms_since(begin);
  if (took > kAbortedWithin) die(what + " was aborted in " + std::to_string(took.count()) + " ms");
  return took.count();
}

long expect_crossed(ClientComm& one, ClientComm& other, FaultClock::time_point begin,
                    const std::string& what) {
  cuda(end_of(one.stream(), begin, what), "a stream after its deadline");
  for (ClientComm* comm : {&one, &other}) expect(failure_now(*comm, begin, what), "crossed", -1);
  return ms_since(begin).count();
}

}  // namespace

void cross(Ending ending) {
  const bool by_abort = ending == Ending::Abort;
  const std::string files = options.id_file + (by_abort ? ".abort" : ".cross");
  long longest = 0;
  for (std::size_t size = 0; size < options.sizes.size(); ++size) {
    const std::uint64_t bytes = options.sizes[size];
    const std::string part = files + std::to_string(size);
    const std::string what = (bytes <= kMostInStream ? "in-stream, " : "launched, ") +
                             std::to_string(bytes) + " bytes in opposite order";
    ClientComm one(exchange_id(part + "a")), other(exchange_id(part + "b"));
    cudaStream_t stream = one.stream();
    for (ClientComm* comm : {&one, &other}) reduce(*comm, bytes, stream);  // the plans are made
    for (ClientComm* comm : {&one, &other}) comm->settle("what comes before");
    one.meet();
    one.settle("meeting");
    const FaultClock::time_point begin = FaultClock::now();
    const bool is_absent = options.ranks > 2 && options.rank == last_rank();
    if (!is_absent) {
      const bool is_first = options.rank % 2 == 0;
      reduce(is_first ? one : other, bytes, stream);
      reduce(is_first ? other : one, bytes, stream);
    }
    std::this_thread::sleep_for(kMoment);
    // Well before any rank ends it.
    if (!is_absent && cudaStreamQuery(stream) != cudaErrorNotReady)
      die(what + ": the calls did not wait for each other");
    if (by_abort) {
      std::this_thread::sleep_for(kMoment);
      longest = std::max(longest, abort_both(one, other, what));
      continue;
    }
    longest = std::max(longest, expect_crossed(one, other, begin, what));
    for (ClientComm* comm : {&one, &other}) {
      arc(arcCommRebuild(comm->handle()), "arcCommRebuild");
      {
        FaultWork work(*comm);
        work.rounds(1);
      }
      comm->leave();
    }
  }
  ClientComm fresh(exchange_id(files + ".fresh"));
  {
    FaultWork work(fresh);
    work.rounds(2);
  }
  fresh.leave();
  if (by_abort) {
    report("39", "two communicators that wait for each other, aborted in " +
                     std::to_string(longest) + " ms");
  } else {
    report("22", "two communicators in opposite order, told after " + std::to_string(longest) +
                     " ms: crossed");
  }
}

void miss() {
  ClientComm comm(exchange_id(options.id_file + ".miss"));
  cudaDeviceProp facts{};
  cuda(cudaGetDeviceProperties(&facts, options.gpu), "cudaGetDeviceProperties");
  unsigned* count = nullptr;
  cuda(cudaMalloc(reinterpret_cast<void**>(&count), sizeof(unsigned)), "cudaMalloc");
  cuda(cudaMemset(count, 0, sizeof(unsigned)), "clearing a count");
  unsigned wanted = 0;
  long longest = 0;
  FaultWork work(comm);
  for (const std::uint64_t bytes : options.sizes) {
    for (const bool in_graph : {false, true}) {
      const std::string what = "rank " + std::to_string(last_rank()) + " did not come to " +
                               std::to_string(bytes) + " bytes" + (in_graph ? " in a graph" : "");
      work.rounds(1);
      cudaGraphExec_t graph = comm.captured([&] { reduce(comm, bytes, comm.stream()); });
      comm.meet();
      comm.settle("meeting");
      const FaultClock::time_point begin = FaultClock::now();
      if (options.rank != last_rank()) {
        if (in_graph) {
          cuda(cudaGraphLaunch(graph, comm.stream()), "cudaGraphLaunch");
        } else {
          reduce(comm, bytes, comm.stream());
        }
        cuda(fill_processors(facts.multiProcessorCount, count, comm.stream()), "a later kernel");
        wanted += static_cast<unsigned>(facts.multiProcessorCount * kBlocksPerProcessor);
        cuda(end_of(comm.stream(), begin, what), "what is behind it");
        if (ms_since(begin) < milliseconds(options.timeout_ms)) die(what + ": ended early");
        unsigned ran = 0;
        cuda(cudaMemcpy(&ran, count, sizeof(ran), cudaMemcpyDeviceToHost), "downloading a count");
        if (ran != wanted) die(what + ": the kernel behind it did not run whole");
        const Failure failure = failure_now(comm, begin, what);
        expect(failure, "peer-late", last_rank());
        longest = std::max<long>(longest, failure.took.count());
      } else {
        std::this_thread::sleep_for(milliseconds(options.timeout_ms));
        expect(failure_now(comm, begin, what), "self-late", last_rank());
      }
      cuda(cudaGraphExecDestroy(graph), "cudaGraphExecDestroy");
      work.rebuild();
    }
  }
  work.rounds(2);
  work.let_go();
  comm.leave();
  report("21, 38", "rank " + std::to_string(last_rank()) + " did not come: named after " +
                       std::to_string(longest) +
                       " ms, and every processor free for what is behind");
}

void free_early() {
  const std::string files = options.id_file + ".free";
  ClientComm beside(exchange_id(files + "0"));
  FaultWork work(beside);
  long longest = 0;
  std::string how = "right";
  for (std::size_t size = 0; size < options.sizes.size(); ++size) {
    const std::uint64_t bytes = options.sizes[size];
    if (bytes <= kMostInStream) continue;  // those kernels are the process's own
    ClientComm comm(exchange_id(files + std::to_string(size + 1)));
    void *send = nullptr, *recv = nullptr;
    for (void** place : {&send, &recv}) cuda(cudaMalloc(place, bytes), "cudaMalloc");
    cuda(cudaMemset(send, kByte, bytes), "filling");
    cuda(cudaDeviceSynchronize(), "filling");
    const std::uint64_t count = bytes / size_of(options.dtype);
    comm.all_reduce(send, recv, count, comm.stream());  // the plan is made
    comm.meet();
    comm.settle("what comes before");
    cuda(cudaMemset(recv, 0, bytes), "clearing");
    cuda(cudaDeviceSynchronize(), "clearing");
    comm.meet();
    comm.settle("meeting");
    if (options.rank == last_rank()) {
      comm.all_reduce(send, recv, count, comm.stream());
      const FaultClock::time_point begin = FaultClock::now();
      for (void* place : {send, recv}) cuda(cudaFree(place), "cudaFree in the middle");
      longest = std::max<long>(longest, ms_since(begin).count());
      comm.synchronize("an operation whose memory was freed");
    } else {
      std::this_thread::sleep_for(kMoment);
      comm.all_reduce(send, recv, count, comm.stream());
      comm.synchronize("an operation whose memory was freed");
      arcResult_t state = arcSuccess;
      arc(arcCommGetAsyncError(comm.handle(), &state), "arcCommGetAsyncError");
      if (state == arcSuccess) {
        expect_same_sum(recv, count);
      } else {
        how = "told as " + std::to_string(state);
      }
      for (void* place : {send, recv}) cuda(cudaFree(place), "cudaFree");
    }
    work.rounds(2);
    arc(arcCommDestroy(comm.handle()), "arcCommDestroy");
  }
  work.let_go();
  beside.leave();
  if (options.rank == last_rank()) how = "cudaFree took " + std::to_string(longest) + " ms";
  report("freed", "memory of cudaMalloc's, freed in the middle of an operation: " + how);
}

void hoard() {
  ClientComm comm(exchange_id(options.id_file + ".hoard"));
  FaultWork work(comm);
  work.rounds(1);
  std::size_t before = 0, after = 0, all = 0;
  cuda(cudaMemGetInfo(&before, &all), "cudaMemGetInfo");
  for (int i = 0; i < kHoards; ++i) {
    void* place = nullptr;
    const arcResult_t asked = in_time("arcMemAlloc", [&] { return arcMemAlloc(&place, all); });
    const arcErrorInfo_t why = asked == arcSuccess ? arcErrorInfo_t{} : last_error();
    if (asked != arcResourceExhausted || why.reason != arcReasonOutOfMemory || place != nullptr)
      die("the memory of a whole GPU was answered with " + std::to_string(asked) + ", reason " +
          std::to_string(why.reason) + ": " + why.message);
  }
  const FaultClock::time_point begin = FaultClock::now();
  // What was given back last may take a moment.
  do {
    cuda(cudaMemGetInfo(&after, &all), "cudaMemGetInfo");
  } while (after + kNoLeak < before && ms_since(begin) < milliseconds(2'000));
  if (after + kNoLeak < before)
    die(std::to_string(kHoards) + " refusals cost " + std::to_string((before - after) >> 20) +
        " MB of the GPU's memory");
  void* place = nullptr;
  arc(arcMemAlloc(&place, 2U << 20), "arcMemAlloc of what there is");
  arc(arcMemFree(place), "arcMemFree");
  work.rounds(1);
  work.let_go();
  comm.leave();
  report("30",
         std::to_string(kHoards) + " times more memory than there is: OutOfMemory, free before " +
             std::to_string(before >> 20) + " MB, after " + std::to_string(after >> 20) + " MB");
}

}  // namespace arcomm::gpu
