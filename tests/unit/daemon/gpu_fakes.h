// GPUs of plain host memory: a resident grid and a launcher that sum float32 where the real ones
// run kernels, and that hold the data plane to their rules (no allocation while a grid runs).
// Thread: the worker's, except for the atomics.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "daemon/exec/clock.h"
#include "daemon/exec/gpu_hardware.h"
#include "transport/device/host_device.h"

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
  std::uint32_t queue = 0, turn = 0;
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
  // Of the ranks of every communicator that works at the time.
  std::vector<int> gpus{0, 1, 2};
  std::vector<FakeGrid*> grids;
  std::vector<FakeLaunch> launches;  // in the order of launching; the worker's
  // By scratch: as in the control page of a real one.
  std::map<const void*, std::uint32_t> cancelled, numbers, gates_done;
  std::map<std::pair<const void*, std::uint32_t>, std::uint32_t> gates;  // and turn
  std::set<const void*> aborted;                                         // scratch
  std::atomic<bool> hold_launches{false};  // kernels wait for a rank that never comes
  std::atomic<int> hangs{-1};              // the same of one algorithm
  std::atomic<std::uint64_t> most_bytes{~std::uint64_t{0}};  // of an allocation
  std::atomic<bool> queues_stay_busy{false};  // what has ended has not been seen to end
  std::atomic<int> running_grids{0}, resumes{0}, pauses{0}, aborts{0};
  std::atomic<bool> sick{false};        // every GPU is in error
  std::atomic<int> gates_giving_up{0};  // so many, as their lives are over
  std::atomic<int> prepared{0};         // launches, not let go
  std::atomic<int> prepared_used{0};
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
      const bool first = queues.emplace(one.launcher, one.queue, one.turn).second;
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
    const std::uint32_t turn = one.gate->turn;
    if (one.gate_number == 0) one.gate_number = 2 * gates[{scratch, turn}]++ + (turn == 0 ? 2 : 1);
    if (aborted.contains(scratch)) return true;
    if (gates_done[scratch] != one.gate_number - 1) return false;
    one.call.done_word = to_word(Done{.number = numbers[scratch] + 1});
    one.skips = cancelled[scratch] - one.gate_number < kMostGatesAhead;
    if (!one.skips && gates_giving_up > 0) {
      --gates_giving_up;
      one.skips = true;
    }
    const Door open{.number = done_from(one.call.done_word).number, .plan = one.gate->plan};
    return one.skips || load_word(*one.gate->door) == to_word(open);
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

class FakeMemory final : public Memory::Backing {
 public:
  FakeMemory(FakeNode& node, Memory memory, int home)
      : node_(node), memory_(std::move(memory)), home_(home) {
    ++node_.memories;
  }
  ~FakeMemory() override {
    EXPECT_EQ(node_.running_grids, 0) << "memory was let go while a grid ran";
    EXPECT_EQ(node_.gated, 0) << "memory was let go while a launch waited for a client";
    // Freshly mapped scratch may lie where it lay.
    node_.cancelled.erase(memory_.data());
    node_.numbers.erase(memory_.data());
    node_.gates_done.erase(memory_.data());
    for (const std::uint32_t turn : {0u, 1u}) node_.gates.erase({memory_.data(), turn});
    node_.aborted.erase(memory_.data());
    --node_.memories;
  }
  MemoryRef view() const override { return memory_.view(); }
  std::byte* data_on(int ordinal) const override {
    return as_found(memory_.data(), home_, ordinal);
  }
  Result<UniqueFd> export_fd() const override { return memory_.export_fd(); }

 private:
  FakeNode& node_;
  Memory memory_;
  int home_;
};

class FakeGpu final : public Device {
 public:
  FakeGpu(FakeNode& node, int ordinal) : node_(node), ordinal_(ordinal) {
    host_ = HostDevice::create({}).value();
  }
  DeviceKind kind() const override { return DeviceKind::Cuda; }
  int ordinal() const override { return ordinal_; }
  std::string name() const override { return "GPU-" + std::to_string(ordinal_); }
  Result<Memory> allocate(std::uint64_t bytes) override {
    EXPECT_EQ(node_.running_grids, 0) << "memory was allocated while a grid ran";
    EXPECT_EQ(node_.gated, 0) << "memory was allocated while a launch waited for a client";
    if (bytes > node_.most_bytes)
      return error(ErrorCode::ResourceExhausted, Reason::OutOfMemory, "no ", bytes, " bytes");
    // Scratch is large, and nobody here looks at it.
    Result<Memory> memory = host_->allocate(std::min<std::uint64_t>(bytes, 4 << 20));
    if (!memory) return memory;
    return Memory(std::make_unique<FakeMemory>(node_, std::move(memory).value(), ordinal_));
  }
  Result<Memory> import(const MemoryHandle& handle, int) override {
    return allocate(handle.length_bytes);
  }
  Result<Stream> create_stream(std::string_view name) override {
    return host_->create_stream(name);
  }
  Result<Event> create_event() override { return host_->create_event(); }

 private:
  FakeNode& node_;
  int ordinal_;
  std::unique_ptr<HostDevice> host_;
};

// Takes its operations whenever it is looked at.
class FakeGrid final : public ResidentGrid {
 public:
  explicit FakeGrid(FakeNode& node) : node_(node) { node_.grids.push_back(this); }
  ~FakeGrid() override {
    std::erase(node_.grids, this);
    if (running_) --node_.running_grids;
  }

  Status resume() override {
    if (!running_) ++node_.running_grids, ++node_.resumes;
    running_ = true;
    return {};
  }
  Status pause(std::chrono::nanoseconds) override {
    if (running_) --node_.running_grids, ++node_.pauses;
    running_ = false;
    return {};
  }
  bool running() const override { return running_; }
  Result<std::uint32_t> add_member(const ResidentMember& member) override {
    for (std::uint32_t slot = 0; slot < kResidentMembers; ++slot) {
      if (slots_[slot]) continue;
      slots_[slot].emplace().member = member;
      return slot;
    }
    return error(ErrorCode::ResourceExhausted, Reason::Quota, "no slot is free");
  }
  Status set_plan(std::uint32_t index, std::uint32_t slot, const ResidentPlan& plan) override {
    plans_[index] = {slot, plan};
    return {};
  }
  Status clear_plan(std::uint32_t index) override {
    plans_.erase(index);
    return {};
  }
  Status abort_member(std::uint32_t slot, Done why) override {
    ++node_.aborts;
    slots_[slot]->aborted = why;
    return {};
  }
  ResidentStatus status(std::uint32_t slot) const override {
    auto& self = const_cast<FakeGrid&>(*this);
    if (running_) self.look(slot);
    return slots_[slot]->status;
  }
  Result<bool> has_begun(std::uint32_t slot, const ResidentPlan& plan) const override {
    EXPECT_FALSE(running_);
    const ResidentPlan* begun = const_cast<FakeGrid&>(*this).open(slot);
    return begun != nullptr && begun->send == plan.send && begun->recv == plan.recv;
  }
  Status remove_member(std::uint32_t slot) override {
    EXPECT_FALSE(running_);
    slots_[slot].reset();
    return {};
  }

 private:
  struct Slot {
    ResidentMember member;
    ResidentStatus status;
    std::uint64_t since_ns = 0;  // its open operation was seen
    Done aborted;
  };
  // The plan of the slot's open operation, if there is one.
  const ResidentPlan* open(std::uint32_t index) {
    const Slot& slot = *slots_[index];
    const Door door = door_from(load_word(slot.member.mailbox->lanes[0].door));
    if (door.number != slot.status.done + 1 || slot.status.failed.code != 0) return nullptr;
    const auto plan = plans_.find(door.plan);
    return plan != plans_.end() && plan->second.first == index ? &plan->second.second : nullptr;
  }
  void look(std::uint32_t index) {
    Slot& slot = *slots_[index];
    if (slot.status.failed.code != 0) return;
    if (slot.aborted.code != 0) {
      slot.status.failed = slot.aborted;
      return;
    }
    const ResidentPlan* plan = open(index);
    if (plan == nullptr) return;
    if (slot.since_ns == 0) slot.since_ns = now_ns();
    std::vector<std::pair<FakeGrid*, std::uint32_t>> peers(slot.member.ranks, {nullptr, 0});
    for (FakeGrid* grid : node_.grids) {
      for (std::uint32_t other = 0; other < kResidentMembers; ++other) {
        if (!grid->slots_[other] || !grid->running_) continue;
        Slot& there = *grid->slots_[other];
        if (there.member.scratch[0] != slot.member.scratch[0]) continue;
        if (grid->open(other) != nullptr) peers[there.member.rank] = {grid, other};
      }
    }
    std::vector<const float*> in;
    std::vector<float*> out;
    for (std::uint32_t rank = 0; rank < peers.size(); ++rank) {
      auto [grid, other] = peers[rank];
      if (grid == nullptr) {
        if (now_ns() - slot.since_ns > plan->timeout_ns) {
          slot.status.failed = {.number = slot.status.done + 1,
                                .code = static_cast<std::uint8_t>(ErrorCode::DeadlineExceeded),
                                .reason = static_cast<std::uint8_t>(Reason::Timeout),
                                .culprit_rank = static_cast<std::int16_t>(rank)};
        }
        return;
      }
      const ResidentPlan& theirs = *grid->open(other);
      in.push_back(static_cast<const float*>(theirs.send));
      out.push_back(static_cast<float*>(theirs.recv));
    }
    sum_floats(in, out, plan->count);
    for (auto [grid, other] : peers) {
      Slot& there = *grid->slots_[other];
      ++there.status.done;
      there.since_ns = 0;
      store_word(there.member.mailbox->lanes[0].done, to_word(Done{.number = there.status.done}));
    }
  }

  FakeNode& node_;
  bool running_ = false;
  std::array<std::optional<Slot>, kResidentMembers> slots_;
  std::map<std::uint32_t, std::pair<std::uint32_t, ResidentPlan>> plans_;
};

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

// The ranks' launches of one operation run when the last of them has begun. GPUs get on whenever a
// launcher is looked at.
class FakeLauncher final : public GpuLauncher {
 public:
  FakeLauncher(FakeNode& node, int ordinal)
      : node_(node), ordinal_(ordinal), waits_(own_queues() + 1), words_(16) {}

  std::uint32_t own_queues() const override { return 4; }
  Status launch(std::uint32_t queue, std::uint32_t turn, CudaAlgorithm algorithm,
                const CudaAllReduce& call) override {
    ARC_RETURN_IF_ERROR(can_launch(algorithm, call));
    FakeLaunch one{.launcher = this,
                   .queue = queue,
                   .turn = queue == 0 ? 0 : turn,
                   .algorithm = algorithm,
                   .call = call};
    std::tie(one.word, one.value) = std::exchange(waits_[queue], {});
    node_.launches.push_back(one);
    node_.advance();
    return {};
  }
  Status launch_behind(std::uint32_t queue, const CudaGate& gate, CudaAlgorithm algorithm,
                       const CudaAllReduce& call) override {
    ARC_RETURN_IF_ERROR(can_launch(algorithm, call));
    EXPECT_NE(queue, 0u) << "others' work is queued there";
    node_.launches.push_back({.launcher = this,
                              .queue = queue,
                              .turn = gate.turn,
                              .algorithm = algorithm,
                              .call = call,
                              .gate = gate});
    node_.advance();
    return {};
  }
  Result<std::unique_ptr<PreparedLaunch>> prepare(std::uint32_t queue, const CudaGate& gate,
                                                  CudaAlgorithm algorithm,
                                                  const CudaAllReduce& call) override;
  Status wait_for(std::uint32_t queue, std::uint64_t* address, std::uint64_t value) override {
    EXPECT_NE(queue, 0u) << "others' work is queued there";
    waits_[queue] = {address, value};
    return {};
  }
  Result<bool> idle(std::uint32_t queue) override {
    node_.advance();
    if (node_.queues_stay_busy) return false;
    return std::none_of(node_.launches.begin(), node_.launches.end(), [&](const auto& one) {
      return one.launcher == this && one.queue == queue;
    });
  }
  Status store(std::uint64_t* address, std::uint64_t value) override {
    store_word(*address, value);
    node_.advance();
    return {};
  }
  Status abort(void* scratch) override {
    ++node_.aborts;
    node_.aborted.insert(scratch);
    std::erase_if(node_.launches, [&](const FakeLaunch& one) {
      if (!one.begun || one.call.scratch[one.call.rank] != scratch) return false;
      one.call.host_outcome->code = static_cast<std::uint32_t>(CudaOutcomeCode::Aborted);
      return true;
    });
    node_.advance();
    return {};
  }
  Status cancel(void* scratch, std::uint32_t number) override {
    node_.advance();  // whatever was called before has begun
    node_.cancelled[scratch] = number;
    return {};
  }
  Status flush(std::chrono::nanoseconds) override { return health(); }
  Status try_whole_lines(int reader, void* memory, std::chrono::nanoseconds) override {
    EXPECT_EQ(node_.running_grids, 0) << "lines were tried while a grid ran";
    std::memset(memory, 0xff, kLl128TestBytes);
    if (!node_.torn.contains({ordinal_, reader})) return {};
    return error(ErrorCode::Unavailable, Reason::Unsupported, "7 of 20000 were torn");
  }
  Status health() override {
    if (!node_.sick) return {};
    return error(ErrorCode::Internal, Reason::None, "an illegal memory access was encountered");
  }
  std::span<RankWords> words() override {
    node_.advance();
    return words_;
  }

 private:
  FakeNode& node_;
  int ordinal_;
  std::vector<std::pair<const std::uint64_t*, std::uint64_t>> waits_;  // by queue
  std::vector<RankWords> words_;
};

class FakePreparedLaunch final : public PreparedLaunch {
 public:
  FakePreparedLaunch(FakeNode& node, std::function<Status(std::uint32_t)> launch)
      : node_(node), launch_(std::move(launch)) {
    EXPECT_EQ(node_.running_grids, 0) << "a launch was prepared while a grid ran";
    EXPECT_EQ(node_.gated, 0) << "a launch was prepared while another waited for a client";
    ++node_.prepared;
  }
  ~FakePreparedLaunch() override {
    EXPECT_EQ(node_.running_grids, 0) << "a launch was let go while a grid ran";
    EXPECT_EQ(node_.gated, 0) << "a launch was let go while another waited for a client";
    --node_.prepared;
  }
  Status launch(std::uint32_t turn) override {
    ++node_.prepared_used;
    return launch_(turn);
  }

 private:
  FakeNode& node_;
  std::function<Status(std::uint32_t)> launch_;
};

inline Result<std::unique_ptr<PreparedLaunch>> FakeLauncher::prepare(std::uint32_t queue,
                                                                     const CudaGate& gate,
                                                                     CudaAlgorithm algorithm,
                                                                     const CudaAllReduce& call) {
  if (node_.preparing_fails)
    return error(ErrorCode::ResourceExhausted, Reason::OutOfMemory, "no memory for it");
  return std::unique_ptr<PreparedLaunch>(
      std::make_unique<FakePreparedLaunch>(node_, [=, this](std::uint32_t turn) {
        CudaGate own = gate;
        own.turn = turn;
        return launch_behind(queue, own, algorithm, call);
      }));
}

}  // namespace arcomm::test
