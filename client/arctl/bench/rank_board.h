// What the rank processes of a bench or a self-test share with the process that started them: one
// memfd, mapped by all. The parent announces one case at a time; the ranks meet, run it, and leave
// their samples here. Every wait ends at its deadline, when a rank reports a failure, or when the
// parent gives up.
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string_view>
#include <utility>

#include "client/arctl/bench/bench_case.h"
#include "client/include/arclient.h"
#include "proto/shared_mapping.h"
#include "proto/status.h"
#include "proto/types.h"
#include "proto/unique_fd.h"

namespace arcomm::arctl {

using Deadline = std::chrono::steady_clock::time_point;

enum class RankDevice : std::uint8_t { Host, Gpu };
enum class RankMemory : std::uint8_t { Shared, Registered, Heap, Cuda };

// Getting ready takes as long as libraries and drivers take, whatever an operation may.
inline constexpr std::chrono::milliseconds kOpensWithin{60'000};

inline constexpr std::uint32_t kMaxSamples = 16384;  // per rank and case

inline constexpr std::size_t kNcclIdBytes = 128;

struct RankSlot {
  alignas(64) std::atomic<std::uint64_t> heartbeat;  // grows with every operation
  // Of the case that was announced last:
  std::uint64_t wrong;
  std::uint64_t checked_bytes;
  std::uint32_t samples;
  std::uint32_t refused;
  GpusSeen seen;
  AccuracyFound accuracy;
  std::atomic<std::uint32_t> steps;  // of what the ranks do in steps, all or none: those done
  char note[256];
  std::uint32_t code;  // ErrorCode; with reason and message, valid once `failed` counts this rank
  std::uint32_t reason;
  char message[512];
};

struct BoardPage {
  std::uint32_t magic;
  std::int32_t ranks;
  arcUniqueId unique_id;
  std::uint64_t buffer_bytes;        // of each of the two buffers that a rank allocates
  std::uint64_t timeout_ms;          // of an operation
  std::uint64_t most_in_call_bytes;  // on the host, to be asked for; 0: nothing is
  RankMemory memory;
  RankDevice device;
  std::int32_t gpus[kMaxRanks];              // by rank: CUDA's number of it
  char nccl[512];                            // the file to load NCCL from
  char data_file[4096];                      // of recorded data
  char nccl_ids[kContenders][kNcclIdBytes];  // rank 0 writes them
  BenchCase current;
  alignas(64) std::atomic<std::uint32_t> announced;  // cases; futex. kNoMoreCases ends the ranks
  alignas(64) std::atomic<std::uint32_t> reported;   // ranks x cases; futex
  alignas(64) std::atomic<std::uint32_t> failed;     // ranks that gave up
  alignas(64) std::atomic<std::uint32_t> arrived;    // at the ranks' barrier
  alignas(64) std::atomic<std::uint32_t> turn;       // of the barrier; futex
  RankSlot slots[kMaxRanks];
};

inline constexpr std::uint32_t kNoMoreCases = 0xffffffff;

// What the call of libarclient that this thread has just made came to, as the board carries it.
Status status_of(arcResult_t result);

class RankBoard {
 public:
  static Result<RankBoard> create(int ranks);
  static Result<RankBoard> open(UniqueFd fd);

  BoardPage& page() const { return *reinterpret_cast<BoardPage*>(mapping_.data()); }
  double* samples_of(Rank rank) const;
  int fd() const { return fd_.get(); }

  // For ranks: until all have arrived.
  Status meet(Deadline deadline) const;
  // Both: until `word` differs from `seen`.
  Status wait_change(std::atomic<std::uint32_t>& word, std::uint32_t seen, Deadline deadline) const;
  void wake(std::atomic<std::uint32_t>& word) const;
  // For ranks: leaves the error and sets everyone free.
  void fail(Rank rank, const Error& failure) const;
  // For ranks: runs every case that is announced, until there are no more.
  Status serve(Rank rank, const std::function<Status(const BenchCase&)>& run) const;

  // For ranks, of the current case: "I am at work", a sample, and what else there is to say.
  void beat(Rank rank) const;
  void sample(Rank rank, double us) const;
  void note(Rank rank, std::string_view text) const;

 private:
  RankBoard(UniqueFd fd, SharedMapping mapping)
      : fd_(std::move(fd)), mapping_(std::move(mapping)) {}

  UniqueFd fd_;
  SharedMapping mapping_;
};

}  // namespace arcomm::arctl
