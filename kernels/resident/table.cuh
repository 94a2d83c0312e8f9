// What a resident grid and its owner share: one table per GPU, in its memory. The owner writes
// entries while the grid is paused, plans and `ended` words at any time.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "kernels/resident/grid.h"

namespace arcomm::device {

// Ten blocks of 256 threads are 0.95% of the thread slots of an H200. Spread over ten of its SMs
// they push fast enough for kMaxResidentBytes.
inline constexpr std::uint32_t kResidentBlocks = 10;
inline constexpr std::uint32_t kResidentThreads = 256;

// Scratch of a member: [half][rank][block] headers, then [half][rank] lines of 16 bytes for every 8
// of data. Halves alternate by operation, as in one_shot_ll16.cu.
inline constexpr std::uint64_t kHeaderBytes = 4096;
inline constexpr std::uint64_t kLinesPerRank = kMaxResidentBytes / 8;
inline constexpr std::uint64_t kScratchBytes =
    kHeaderBytes + 2 * kMaxGpuRanks * kLinesPerRank * sizeof(uint4);
static_assert(2 * kMaxGpuRanks * kResidentBlocks * sizeof(uint4) <= kHeaderBytes);

struct MemberEntry {
  ResidentMember member;  // mailbox null: a free slot
  std::uint64_t* host_done;
  std::uint64_t* host_failed;
  std::uint64_t owner;  // of its plans; never the owner of the slot's earlier members
};

// Copied by whole vectors.
struct alignas(16) PlanEntry {
  ResidentPlan plan;
  std::uint64_t owner;  // the member's; 0: no plan. Written last, read first
};

enum class Progress : std::uint32_t { Idle = 0, Pushed = 1, Over = 2 };

inline constexpr std::uint32_t kNoPlan = ~std::uint32_t{0};

// How far one block is with a member's operation. In shared memory; kept here between two runs.
struct Pending {
  PlanEntry entry{};  // a copy of plan `plan`; the owner changes one only while it forgets it
  std::uint32_t plan = kNoPlan;          // kNoPlan: none
  std::uint32_t identity = kNoIdentity;  // of the last operation
  std::uint64_t since_ns = 0;            // of the first look in vain; 0: none yet
  std::uint32_t number = 0;              // of the last operation that the block has looked at
  std::uint32_t blocks = 0;              // that share it
  std::uint32_t lines = 0;
  std::uint32_t next = 0;  // the first line of a round that is not combined yet
  Progress progress = Progress::Idle;
  bool agreed = false;  // all ranks' headers were seen and are like ours
  // A rank whose header is not, or -1: that asks for something else, or for the same but has
  // another identity.
  std::int16_t dissenter = -1, out_of_order = -1;
};

// How far one block is with the runs of the grid, which count from 1. In host memory, which the
// owner reads without a call to the driver.
struct alignas(64) BlockWords {
  std::uint32_t begun;  // its last run
  std::uint32_t left;   // the last run that it has left: it touches nothing any more
};

struct ResidentTable {
  // Runs up to this one leave. A block says that it has begun, and looks here before it touches
  // anything else; the owner writes here, and then looks which blocks have begun.
  std::uint32_t quit;
  // A Done word, with which the member's operation and each later one ends. The first word stays.
  alignas(128) unsigned long long ended[kResidentMembers];
  alignas(128) std::uint32_t blocks_done[kResidentMembers];
  alignas(128) MemberEntry members[kResidentMembers];
  Pending pending[kResidentBlocks][kResidentMembers];
  PlanEntry plans[kMaxDevicePlans];
};

// a is run b, or a later one; runs count modulo 2^32.
__host__ __device__ constexpr bool is_at(std::uint32_t a, std::uint32_t b) {
  return static_cast<std::int32_t>(a - b) >= 0;
}

// words: of every block.
cudaError_t launch_resident(ResidentTable* table, BlockWords* words, std::uint32_t run,
                            cudaStream_t stream);
cudaError_t load_resident();

}  // namespace arcomm::device
