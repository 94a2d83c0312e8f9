// What fake GPUs have in common: the launches in their queues, and the words by which gates go. A
// queue gets on when a launcher is looked at; sums are float32. Thread: the worker's, except for
// the atomics.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <functional>
#include <iterator>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <tuple>
#include <utility>
#include <vector>

#include "daemon/exec/clock.h"
#include "daemon/exec/gpu/hardware/gpu_hardware.h"
#include "kernels/cuda_algorithms.h"
#include "kernels/launch/cuda_scratch.h"
#include "proto/gpu/device_mailbox.h"
#include "tests/unit/daemon/exec/gpu/fakes/fake_in_stream.h"
#include "tests/unit/daemon/exec/gpu/fakes/fake_words.h"

namespace arcomm::test {

// Where GPU `ordinal` finds memory of GPU `home`: another address on each, as with CUDA IPC. Only
// the home's can be read here.
template <typename T>
T* as_found(T* address, int home, int ordinal) {
  constexpr std::intptr_t kFar = std::intptr_t{1} << 36;
  return reinterpret_cast<T*>(reinterpret_cast<std::intptr_t>(address) + (ordinal - home) * kFar);
}

class FakeGrid;

// One rank's part of an operation, or something else, in the queue of a launcher.
struct FakeLaunch {
  const void* launcher = nullptr;
  std::uint32_t queue = 0, parity = 0;
  bool is_of_copies = false;            // in the queue's stream of copies
  std::function<bool()> act = {};       // nothing but this; true: it has happened
  const std::uint64_t* word = nullptr;  // a wait: nothing but this; null: it waits for nobody
  std::uint64_t value = 0;              // that it waits for
  CudaAlgorithm algorithm = CudaAlgorithm::Alone;
  CudaAllReduce call = {};
  std::optional<CudaGate> gate = std::nullopt;
  std::uint32_t gate_number = 0;  // from when it is the first of its queue; modulo 2^32
  bool is_numbered = false;
  std::uint64_t since_ns = 0;  // the gate waits; then, the operation
  bool begun = false;

  bool waits() const { return !begun && (gate || word != nullptr); }
  const void* scratch() const { return call.scratch[call.rank]; }
};

// What the control page of a real scratch says.
struct FakeScratch {
  // How many operations ended well, and gates there were, before a scratch is new (an even number).
  static inline std::uint32_t before = 0;
  std::uint32_t cancelled = 0;
  std::uint32_t number = before;                      // of the last operation that ended well
  std::uint32_t gates[2] = {before / 2, before / 2};  // that were first in their queue, by parity
  std::uint32_t operations = 0;                       // since it started over
  std::uint32_t gated = before;                       // launches behind gates that have ended
  std::set<std::uint32_t> skipped;                    // gates that a rank did not open
  CudaOutcome outcome = {};                           // the first thing that went wrong
  bool aborted = false;
};

struct FakeRange {
  std::uint64_t bytes = 0;
  int home = -1;
};

struct FakeNode {
  std::vector<std::byte> in_stream_image = {};  // none: clients launch nothing by themselves
  std::vector<std::byte> coded_image = {};      // of the first codec
  // Of the ranks of every communicator that works at the time.
  std::vector<int> gpus{0, 1, 2};
  std::vector<FakeGrid*> grids;
  std::vector<FakeLaunch> launches;           // in the order of launching; the worker's
  std::atomic<std::uint32_t> most_blocks{0};  // of the last launch
  std::map<const void*, FakeScratch> scratches;
  std::map<const std::byte*, FakeRange> ranges;           // of GPUs' memory, by its address at home
  std::map<const std::byte*, std::uint64_t> there;        // of its bytes, likewise
  std::array<std::atomic<std::uint64_t>, 3> allocated{};  // bytes of each GPU
  std::atomic<int> refuses_growth{-1};                    // a GPU that has no memory for more
  InStreamPushes in_stream_pushes;
  std::map<std::uintptr_t, std::shared_ptr<bool>> events;  // that serve: whether they have happened
  std::uintptr_t last_event = 0;
  std::span<std::byte> pinned;             // the host's memory that GPUs reach
  std::atomic<bool> hold_launches{false};  // kernels wait for a rank that never comes
  std::atomic<int> hangs{-1};              // the same of one algorithm
  // One algorithm leaves the last of operations of at least wrong_from bytes as it was.
  std::atomic<int> wrong{-1};
  std::atomic<std::uint64_t> wrong_from{0};
  std::atomic<std::uint64_t> most_bytes{~std::uint64_t{0}};  // of an allocation
  std::atomic<std::size_t> imported_chunks{0};
  std::atomic<bool> imports_fail{false};      // once all is mapped
  std::atomic<bool> queues_stay_busy{false};  // what has ended has not been seen to end
  std::atomic<int> running_grids{0}, resumes{0}, pauses{0}, aborts{0};
  std::atomic<int> network_launches{0}, network_running{0};  // kernels between nodes
  std::atomic<bool> network_held{false};                     // they wait before they begin
  std::atomic<bool> full{false};  // others' kernels fill every GPU: no grid or echo starts
  std::atomic<bool> tried_to_clear{false};   // by a kernel, while others' kernels filled the GPUs
  std::atomic<int> full_gpu{-1};             // or that GPU alone: no echo starts there
  std::atomic<int> echoes{0};                // in queues, or running
  std::atomic<std::uint64_t> echo_ended{0};  // as the last one did: FlagEchoEnd
  std::atomic<bool> stuck{false};            // no grid leaves
  std::atomic<bool> sick{false};             // every GPU is in error
  std::atomic<bool> stands_still{false};     // no GPU gets on, and none is in error
  // Of an allocation: beside a kernel that fills the GPU its memory is cleared by a copy engine.
  std::atomic<int> allocation_ms{0};
  std::atomic<bool> clears_late{false};  // and keeps what it was to clear
  std::atomic<int> late_looks{0};        // not any more from so many looks for room on: 0: for ever
  bool gates_expire = true;              // by the clock; else only those that are told to:
  std::atomic<int> gates_giving_up{0};   // so many, as their lives are over
  std::atomic<int> prepared{0};          // launches, not let go
  std::atomic<int> prepared_used{0};
  std::atomic<int> by_copies{0};  // operations that copy engines have carried
  std::atomic<int> copies{0}, combined{0};
  std::atomic<bool> copies_fail{false};
  std::atomic<int> in_stream{0};  // launched for in-stream operations of the daemon's own
  std::uint32_t operations_of_scratch = ~std::uint32_t{0};  // set before it is used
  std::uint32_t operations_before = 0;                      // in every new mailbox, too
  std::atomic<int> started_over{0};                         // scratches
  std::atomic<bool> in_stream_fails{false};
  std::atomic<bool> in_stream_wrong{false};  // sums nothing, and says that it has
  std::atomic<bool> preparing_fails{false};
  // Ordinals of writer and reader between which stores of 128 bytes are torn.
  std::set<std::pair<int, int>> torn;
  int torn_under_load = -1;      // those at this GPU, too, where several write at a time
  std::atomic<int> memories{0};  // allocated and not let go
  std::atomic<int> gated{0};     // launches that wait for a client
  std::atomic<int> sums{0};      // operations that ran
  std::atomic<unsigned> ran{0};  // bit a: by algorithm a

  // By which operations ran since the last time.
  std::set<CudaAlgorithm> algorithms() {
    std::set<CudaAlgorithm> seen;
    const unsigned bits = ran.exchange(0);
    for (const CudaAlgorithmEntry& entry : cuda_algorithms()) {
      if ((bits >> static_cast<unsigned>(entry.algorithm) & 1) != 0) seen.insert(entry.algorithm);
    }
    return seen;
  }

  // Whether such a kernel waits for room.
  bool is_clearing() {
    if (!full) tried_to_clear = false;
    return tried_to_clear;
  }

  // What GPUs would do by themselves.
  void advance() {
    while (!stands_still && (begin_some() || finish_some())) {
    }
    gated = static_cast<int>(std::count_if(launches.begin(), launches.end(),
                                           [](const auto& one) { return one.waits(); }));
  }

  // A kernel that would read and write slots finds them on every rank.
  void expect_slots(CudaAlgorithm algorithm, const CudaAllReduce& call) const {
    if (!entry_of(algorithm).needs_slots) return;
    for (std::uint32_t rank = 0; rank < call.ranks; ++rank) {
      const auto found = there.find(static_cast<const std::byte*>(call.scratch[rank]));
      if (found == there.end()) continue;
      EXPECT_GE(found->second, cuda_scratch_bytes(call.ranks))
          << name_of(algorithm) << " without slots on rank " << rank;
    }
  }

  // What GPU `ordinal` finds at an address, if it is memory of a GPU's.
  std::byte* here(const void* address, int ordinal) const {
    const auto* const wanted = static_cast<const std::byte*>(address);
    if (wanted >= pinned.data() && wanted < pinned.data() + pinned.size())
      return const_cast<std::byte*>(wanted);
    for (const auto& [base, range] : ranges) {
      for (const std::byte* seen : {base, as_found(base, range.home, ordinal)}) {
        if (wanted >= seen && wanted < seen + range.bytes)
          return const_cast<std::byte*>(base) + (wanted - seen);
      }
    }
    ADD_FAILURE() << address << " is in no GPU's memory";
    return nullptr;
  }
  bool is_at_home(const void* address, int ordinal) const {
    const auto after = ranges.upper_bound(static_cast<const std::byte*>(address));
    if (after == ranges.begin()) return false;
    const auto& [base, range] = *std::prev(after);
    return address < base + range.bytes && range.home == ordinal;
  }

  // What waits on the scratch ends.
  void abort(const void* scratch) {
    scratches[scratch].aborted = true;
    advance();
  }

 private:
  bool begin_some() {
    bool any = false;
    std::set<std::tuple<const void*, std::uint32_t, std::uint32_t, bool>> queues;
    for (std::size_t i = 0; i < launches.size(); ++i) {
      FakeLaunch& one = launches[i];
      const bool first =
          queues.emplace(one.launcher, one.queue, one.parity, one.is_of_copies).second;
      if (!first || one.begun) continue;
      if (one.word != nullptr || one.act) {
        if (one.act ? !one.act() : load_word(*one.word) != one.value) continue;
        launches.erase(launches.begin() + static_cast<std::ptrdiff_t>(i));
        return true;
      }
      if (one.gate && !passes(one)) continue;
      any = one.begun = true;
      one.since_ns = now_ns();
    }
    return any;
  }
  // Whether the gate lets go what is behind it, to run or to end having done nothing.
  bool passes(FakeLaunch& one) {
    FakeScratch& own = scratches[one.scratch()];
    if (!std::exchange(one.is_numbered, true)) {
      const std::uint32_t parity = one.gate->parity;
      one.gate_number = 2 * own.gates[parity]++ + (parity == 0 ? 2 : 1);
      one.since_ns = now_ns();
    }
    const bool is_too_old = gates_expire && now_ns() - one.since_ns >= one.gate->lifetime_ns;
    if (own.gated != one.gate_number - 1) return own.aborted && is_too_old;  // not its turn
    if (own.aborted) return true;
    bool skips = is_too_old || own.cancelled - one.gate_number < kMostGatesAhead;
    if (!skips && gates_giving_up > 0) {
      --gates_giving_up;
      skips = true;
    }
    if (skips) {
      for (std::uint32_t rank = 0; rank < one.call.ranks; ++rank)
        scratches[one.call.scratch[rank]].skipped.insert(one.gate_number);
      return true;
    }
    one.call.done_word = to_word(Done{.number = own.number + 1});
    const Doorbell open{
        .number = own.number + 1, .plan = one.gate->plan, .identity = one.gate->identity};
    return load_word(*one.gate->doorbell) == to_word(open);
  }
  static bool together(const FakeLaunch& one, const FakeLaunch& other) {
    return one.call.scratch[0] == other.call.scratch[0] && one.gate_number == other.gate_number &&
           one.is_numbered == other.is_numbered;
  }
  bool finish_some() {
    for (std::size_t i = 0; i < launches.size(); ++i) {
      const FakeLaunch& one = launches[i];
      if (!one.begun) continue;
      const FakeScratch& own = scratches[one.scratch()];
      if (one.gate && own.skipped.contains(one.gate_number)) {  // nobody is told of it
        end(i);
        return true;
      }
      if (own.outcome.code != 0 || (own.aborted && one.call.count != 0)) {
        end_badly(i, CudaOutcomeCode::Aborted, 0);
        return true;
      }
      if (one.call.count == 0) {
        tell_done(one.call);
        end(i);
        return true;
      }
      std::map<std::uint32_t, CudaAllReduce> calls;  // by rank
      for (const FakeLaunch& other : launches) {
        if (other.begun && together(one, other)) calls.emplace(other.call.rank, other.call);
      }
      if (calls.size() == one.call.ranks) {
        if (hold_launches || hangs == static_cast<int>(one.algorithm)) continue;
        if (scratches[one.scratch()].operations == operations_of_scratch) {
          end_badly(i, CudaOutcomeCode::EpochsUsedUp, 0);
          return true;
        }
        for (const auto& [rank, call] : calls) ++scratches[call.scratch[rank]].operations;
        ran |= 1u << static_cast<unsigned>(one.algorithm);  // before a client hears of it
        run(calls, wrong == static_cast<int>(one.algorithm));
        const FakeLaunch ended = one;
        for (std::size_t at = launches.size(); at-- > 0;) {
          if (launches[at].begun && together(ended, launches[at])) end(at);
        }
        return true;
      }
      if (now_ns() - one.since_ns < one.call.timeout_ns) continue;
      std::uint32_t missing = 0;
      while (calls.contains(missing)) ++missing;
      end_badly(i, CudaOutcomeCode::Timeout, missing);
      return true;
    }
    return false;
  }
  void end(std::size_t at) {
    const FakeLaunch& one = launches[at];
    if (one.gate) ++scratches[one.scratch()].gated;
    launches.erase(launches.begin() + static_cast<std::ptrdiff_t>(at));
  }
  // The first thing that goes wrong on a scratch is what all that follow there say.
  void end_badly(std::size_t at, CudaOutcomeCode code, std::uint32_t culprit) {
    const CudaAllReduce& call = launches[at].call;
    FakeScratch& own = scratches[launches[at].scratch()];
    own.aborted = true;
    if (own.outcome.code == 0) own.outcome = {static_cast<std::uint32_t>(code), culprit};
    if (call.host_outcome != nullptr) {
      store_word(*reinterpret_cast<std::uint64_t*>(call.host_outcome),
                 std::uint64_t{own.outcome.culprit} << 32 | own.outcome.code);
    }
    end(at);
  }
  void tell_done(const CudaAllReduce& call) {
    if (call.done_word != 0)
      scratches[call.scratch[call.rank]].number = done_from(call.done_word).number;
    if (call.done != nullptr) store_word(*call.done, call.done_word);
    if (call.host_done != nullptr) store_word(*call.host_done, call.done_word);
  }
  void run(const std::map<std::uint32_t, CudaAllReduce>& calls, bool is_wrong);
};

inline void FakeNode::run(const std::map<std::uint32_t, CudaAllReduce>& calls, bool is_wrong) {
  std::vector<const float*> in;
  std::vector<float*> out;
  for (const auto& [rank, one] : calls) {
    in.push_back(static_cast<const float*>(one.send[rank]));
    out.push_back(static_cast<float*>(one.recv[rank]));
    for (const auto& [other, peer] : calls) {
      const int here = gpus[rank], home = gpus[other];
      EXPECT_EQ(one.send[other], as_found(peer.send[other], home, here));
      EXPECT_EQ(one.recv[other], as_found(peer.recv[other], home, here));
    }
  }
  const CudaAllReduce& first = calls.begin()->second;
  // Bytes of another type are floats here too, also to the trials of a tuner.
  const std::uint64_t bytes = first.count * size_of(first.dtype);
  const bool leaves_one = is_wrong && bytes >= wrong_from;
  sum_floats(in, out, bytes / sizeof(float) - (leaves_one ? 1 : 0));
  ++sums;
  for (const auto& [rank, one] : calls) tell_done(one);
}

}  // namespace arcomm::test
