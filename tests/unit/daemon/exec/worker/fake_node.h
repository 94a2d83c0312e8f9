// What fake GPUs have in common: the launches in their queues, and the words by which gates go. A
// queue gets on when a launcher is looked at; sums are float32. Thread: the worker's, except for
// the atomics.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <tuple>
#include <utility>
#include <vector>

#include "daemon/exec/gpu/gpu_hardware.h"
#include "proto/device_mailbox.h"

namespace arcomm::test {

inline std::uint64_t load_word(const std::uint64_t& word) {
  return __atomic_load_n(&word, __ATOMIC_ACQUIRE);
}
inline void store_word(std::uint64_t& word, std::uint64_t value) {
  __atomic_store_n(&word, value, __ATOMIC_RELEASE);
}

// out[i] of every rank becomes the sum of in[i] of all.
inline void sum_floats(const std::vector<const float*>& in, const std::vector<float*>& out,
                       std::uint64_t count) {
  for (std::uint64_t i = 0; i < count; ++i) {
    float sum = 0;
    for (const float* one : in) sum += one[i];
    for (float* one : out) one[i] = sum;
  }
}

class FakeGrid;

// One rank's part of an operation, in the queue of a launcher.
struct FakeLaunch {
  const void* launcher = nullptr;
  std::uint32_t queue = 0, parity = 0;
  const std::uint64_t* word = nullptr;  // null: it waits for nobody
  std::uint64_t value = 0;              // that it waits for
  CudaAlgorithm algorithm = CudaAlgorithm::Alone;
  CudaAllReduce call;
  std::optional<CudaGate> gate = std::nullopt;
  std::uint32_t gate_number = 0;  // from when it is the first of its queue
  bool begun = false, skips = false;

  bool waits() const { return !begun && (gate || word != nullptr); }
};

struct FakeNode {
  std::vector<std::byte> in_stream_image = {};  // none: clients launch nothing by themselves
  // Of the ranks of every communicator that works at the time.
  std::vector<int> gpus{0, 1, 2};
  std::vector<FakeGrid*> grids;
  std::vector<FakeLaunch> launches;  // in the order of launching; the worker's
  // By scratch: as in the control page of a real one.
  std::map<const void*, std::uint32_t> cancelled, numbers, gates_done;
  std::map<std::pair<const void*, std::uint32_t>, std::uint32_t> gates;  // and parity
  std::set<const void*> aborted;                                         // scratch
  std::atomic<bool> hold_launches{false};  // kernels wait for a rank that never comes
  std::atomic<int> hangs{-1};              // the same of one algorithm
  std::atomic<std::uint64_t> most_bytes{~std::uint64_t{0}};  // of an allocation
  std::atomic<std::size_t> imported_chunks{0};
  std::atomic<bool> queues_stay_busy{false};  // what has ended has not been seen to end
  std::atomic<int> running_grids{0}, resumes{0}, pauses{0}, aborts{0};
  std::atomic<bool> sick{false};        // every GPU is in error
  std::atomic<int> gates_giving_up{0};  // so many, as their lives are over
  std::atomic<int> prepared{0};         // launches, not let go
  std::atomic<int> prepared_used{0};
  std::atomic<int> joint{0};  // operations launched for all ranks at once
  std::atomic<bool> joint_fails{false};
  std::atomic<int> in_stream{0};  // launched for in-stream operations of the daemon's own
  std::atomic<bool> in_stream_fails{false};
  std::atomic<bool> preparing_fails{false};
  // Ordinals of writer and reader between which stores of 128 bytes are torn.
  std::set<std::pair<int, int>> torn;
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

  // What GPUs would do by themselves.
  void advance() {
    while (begin_some() || finish_some()) {
    }
    gated = static_cast<int>(std::count_if(launches.begin(), launches.end(),
                                           [](const auto& one) { return one.waits(); }));
  }

 private:
  bool begin_some() {
    bool any = false;
    std::set<std::tuple<const void*, std::uint32_t, std::uint32_t>> queues;
    for (std::size_t i = 0; i < launches.size();) {
      FakeLaunch& one = launches[i++];
      const bool first = queues.emplace(one.launcher, one.queue, one.parity).second;
      if (!first || one.begun) continue;
      if (one.word != nullptr && load_word(*one.word) != one.value) continue;
      const void* scratch = one.call.scratch[one.call.rank];
      if (one.gate && !passes(one, scratch)) continue;
      any = one.begun = true;
      if (!one.skips && aborted.contains(scratch)) {
        one.call.host_outcome->code = static_cast<std::uint32_t>(CudaOutcomeCode::Aborted);
        launches.erase(launches.begin() + static_cast<std::ptrdiff_t>(--i));
      }
    }
    return any;
  }
  static bool together(const FakeLaunch& one, const FakeLaunch& other) {
    return one.call.scratch[0] == other.call.scratch[0] && one.gate_number == other.gate_number;
  }
  bool passes(FakeLaunch& one, const void* scratch) {
    const std::uint32_t parity = one.gate->parity;
    if (one.gate_number == 0)
      one.gate_number = 2 * gates[{scratch, parity}]++ + (parity == 0 ? 2 : 1);
    if (aborted.contains(scratch)) return true;
    if (gates_done[scratch] != one.gate_number - 1) return false;
    one.call.done_word = to_word(Done{.number = numbers[scratch] + 1});
    one.skips = cancelled[scratch] - one.gate_number < kMostGatesAhead;
    if (!one.skips && gates_giving_up > 0) {
      --gates_giving_up;
      one.skips = true;
    }
    const Doorbell open{.number = done_from(one.call.done_word).number, .plan = one.gate->plan};
    return one.skips || load_word(*one.gate->doorbell) == to_word(open);
  }
  bool finish_some() {
    for (const FakeLaunch& one : launches) {
      if (!one.begun) continue;
      std::vector<CudaAllReduce> calls;
      std::uint32_t begun = 0;
      bool skipped = false;
      for (const FakeLaunch& other : launches) {
        if (!together(one, other)) continue;
        skipped |= other.skips;
        begun += other.begun ? 1 : 0;
        if (other.begun) calls.push_back(other.call);
      }
      if (begun != one.call.ranks) continue;
      if (!skipped && (hold_launches || hangs == static_cast<int>(one.algorithm))) continue;
      if (!skipped) {
        ran |= 1u << static_cast<unsigned>(one.algorithm);  // before a client hears of it
        run(calls);
      }
      for (const FakeLaunch& other : launches) {
        if (other.begun && other.gate && together(one, other))
          ++gates_done[other.call.scratch[other.call.rank]];
      }
      const FakeLaunch ended = one;
      std::erase_if(launches,
                    [&](const auto& other) { return other.begun && together(ended, other); });
      return true;
    }
    return false;
  }
  void run(const std::vector<CudaAllReduce>& calls);
};

// Where GPU `ordinal` finds memory of GPU `home`: another address on each, as with CUDA IPC. Only
// the home's can be read here.
template <typename T>
T* as_found(T* address, int home, int ordinal) {
  constexpr std::intptr_t kFar = std::intptr_t{1} << 36;
  return reinterpret_cast<T*>(reinterpret_cast<std::intptr_t>(address) + (ordinal - home) * kFar);
}

inline void FakeNode::run(const std::vector<CudaAllReduce>& calls) {
  std::vector<const float*> in;
  std::vector<float*> out;
  for (const CudaAllReduce& one : calls) {
    in.push_back(static_cast<const float*>(one.send[one.rank]));
    out.push_back(static_cast<float*>(one.recv[one.rank]));
    for (const CudaAllReduce& peer : calls) {
      if (one.count == 0) continue;  // no buffers
      const int here = gpus[one.rank], home = gpus[peer.rank];
      EXPECT_EQ(one.send[peer.rank], as_found(peer.send[peer.rank], home, here));
      EXPECT_EQ(one.recv[peer.rank], as_found(peer.recv[peer.rank], home, here));
    }
  }
  // Bytes of another type are floats here too: nobody looks at those sums.
  sum_floats(in, out, calls[0].count * size_of(calls[0].dtype) / sizeof(float));
  ++sums;
  for (const CudaAllReduce& one : calls) {
    numbers[one.scratch[one.rank]] = done_from(one.done_word).number;
    store_word(*one.done, one.done_word);
    store_word(*one.host_done, one.done_word);
  }
}

}  // namespace arcomm::test
