// What one rank does while things break around it: small and large AllReduces, back to back on a
// stream and in a replayed graph, every result held to the reference; and what it must see when
// they break: each call and each stream within its limit, and words that say why. Of the process's
// options; what is not as it must be ends the process (die).
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "client/include/arclient.h"
#include "tests/gpu/service/client/client_comm.h"
#include "tests/gpu/service/client/client_pattern.h"

namespace arcomm::gpu {

using FaultClock = std::chrono::steady_clock;
std::chrono::milliseconds ms_since(FaultClock::time_point begin);

// No call lasts longer than its timeout and this.
inline constexpr std::chrono::milliseconds kCallLate{100};
// Nor does a stream, whose kernels begin a little after the call, give the daemon's word 100 ms,
// and are looked at now and then: without MPS, when it is their process's turn.
inline constexpr std::chrono::milliseconds kStreamLate{250};
// For a process that is stopped for so long: added to every limit.
extern std::chrono::milliseconds stopped_for;

struct Failure {
  arcResult_t code = arcSuccess;
  arcErrorInfo_t info{};
  cudaError_t stream = cudaSuccess;  // what CUDA said of the stream
  std::chrono::milliseconds took{};  // from the first call of what failed until it was told
  std::string during;                // in words

  std::string text() const;
};

// Makes the call, which may fail, and holds it to its limit: the timeout, kCallLate and `more`.
template <typename Call>
arcResult_t in_time(const char* what, Call call, std::chrono::milliseconds more = {});
void expect_in_time(const char* what, FaultClock::time_point begin, std::chrono::milliseconds more);

// Of this thread's last failed call.
arcErrorInfo_t last_error();
// What the communicator says: asked until it says something, or for `patience`.
std::optional<Failure> failure_of(arcComm_t comm, std::chrono::milliseconds patience);
// Waits until the stream is idle, or in error; it has kStreamLate past the timeout from `begin` on.
cudaError_t end_of(cudaStream_t stream, FaultClock::time_point begin, const std::string& what);

class FaultWork {
 public:
  explicit FaultWork(ClientComm& comm);
  ~FaultWork();
  FaultWork(const FaultWork&) = delete;
  FaultWork& operator=(const FaultWork&) = delete;

  // All kinds of work, once each; what failed, if anything did.
  std::optional<Failure> round();
  void rounds(int count);  // which must be well
  std::optional<Failure> until_failure(std::chrono::milliseconds limit);

  // After the end of its communicator: its graphs run through at once, its streams are idle.
  void expect_replays_to_end();
  // By all ranks, until there is a daemon and all have come. Then work goes on as before.
  void rebuild();
  void let_go();  // of the graphs, before the communicator's memory goes

  std::chrono::milliseconds longest() const { return longest_; }  // of one kind in a round
  void forget_longest() { longest_ = {}; }

 private:
  enum class Way { Stream, Graph };
  std::optional<Failure> step(std::uint64_t bytes, Way way);
  std::optional<Failure> told(FaultClock::time_point begin, const std::string& during,
                              cudaError_t stream);
  void capture();

  ClientComm& comm_;
  const Pattern pattern_;
  std::byte* host_ = nullptr;            // pinned
  std::vector<cudaGraphExec_t> graphs_;  // by size
  std::chrono::milliseconds longest_{};
};

template <typename Call>
arcResult_t in_time(const char* what, Call call, std::chrono::milliseconds more) {
  const FaultClock::time_point begin = FaultClock::now();
  const arcResult_t result = call();
  expect_in_time(what, begin, more);
  return result;
}

}  // namespace arcomm::gpu
