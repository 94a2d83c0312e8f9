// A launcher that sums float32 on the host where the real one runs kernels, and that holds the data
// plane to its rules: nothing is prepared while a grid runs. Thread: the worker's, except for the
// atomics of the node.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <deque>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tests/unit/daemon/exec/gpu/fakes/fake_flag_echo.h"
#include "tests/unit/daemon/exec/gpu/fakes/fake_network.h"
#include "tests/unit/daemon/exec/gpu/fakes/fake_node.h"

namespace arcomm::test {

// The ranks' launches of one operation run when the last of them has begun. GPUs get on whenever a
// launcher is looked at.
class FakeLauncher final : public GpuLauncher {
 public:
  FakeLauncher(FakeNode& node, int ordinal) : node_(node), ordinal_(ordinal), words_(16) {}

  std::uint32_t own_queues() const override { return 4; }
  Status launch(std::uint32_t queue, std::uint32_t parity, CudaAlgorithm algorithm,
                const CudaAllReduce& call) override {
    ARC_RETURN_IF_ERROR(can_launch(algorithm, call));
    if (entry_of(algorithm).launches_all_ranks) {
      EXPECT_EQ(call.count, 0u) << "copies and launches of all ranks";
      if (call.rank == 0) ++node_.by_copies;
    }
    node_.expect_slots(algorithm, call);
    node_.most_blocks = call.most_blocks;
    node_.launches.push_back({.launcher = this,
                              .queue = queue,
                              .parity = queue == 0 ? 0 : parity,
                              .algorithm = algorithm,
                              .call = call});
    node_.advance();
    return {};
  }
  Result<QueueEvent> record(QueueStream stream) override {
    std::deque<std::uintptr_t>& serve = events_[stream.queue];
    const std::uintptr_t event = ++node_.last_event;
    serve.push_back(event);
    if (serve.size() > kQueueEvents) {
      node_.events.erase(serve.front());
      serve.pop_front();
    }
    auto happened = std::make_shared<bool>(false);
    node_.events.emplace(event, happened);
    put(stream, [happened] { return *happened = true; });
    return QueueEvent{event};
  }
  Status wait(QueueStream stream, QueueEvent event) override {
    const auto found = node_.events.find(event.id);
    EXPECT_NE(found, node_.events.end()) << "an event that serves no more";
    if (found != node_.events.end()) put(stream, [happened = found->second] { return *happened; });
    return {};
  }
  Status copy(std::uint32_t queue, void* to, const void* from, std::uint64_t bytes) override {
    if (node_.copies_fail)
      return error(ErrorCode::Internal, Reason::None, "the copy engines are on strike");
    EXPECT_NE(bytes, 0u);
    put({.queue = queue, .kind = QueueStream::Kind::Copies}, [=, this] {
      std::memmove(node_.here(to, ordinal_), node_.here(from, ordinal_), bytes);
      ++node_.copies;
      return true;
    });
    return {};
  }
  Status combine(std::uint32_t queue, std::uint32_t parity, const CombineCall& call) override {
    put({.queue = queue, .parity = parity}, [=, this] {
      EXPECT_TRUE(node_.is_at_home(call.out, ordinal_));
      std::vector<const float*> parts;
      for (std::uint32_t rank = 0; rank < call.ranks; ++rank) {
        EXPECT_TRUE(node_.is_at_home(call.parts[rank], ordinal_)) << rank;
        parts.push_back(static_cast<const float*>(call.parts[rank]));
      }
      sum_floats(parts, {static_cast<float*>(call.out)},
                 call.count * size_of(call.dtype) / sizeof(float));
      ++node_.combined;
      node_.ran |= 1u << static_cast<unsigned>(CudaAlgorithm::CopyEngine);
      return true;
    });
    return {};
  }
  Status launch_network(std::uint32_t queue, const NetworkLaunch& launch) override {
    EXPECT_TRUE(network_is_loaded_) << "the driver would wait for what runs";
    EXPECT_TRUE(node_.is_at_home(launch.call.ports, ordinal_));
    NetworkLaunch found = launch;
    for (std::uint32_t seat = 0; seat < kMaxGpuRanks; ++seat) {
      NetworkSeats& seats = found.call.seats;
      std::uint64_t*& done = found.waiters[seat].done;
      if (seat < seats.count) {
        seats.send[seat] = node_.here(seats.send[seat], ordinal_);
        seats.recv[seat] = node_.here(seats.recv[seat], ordinal_);
      }
      if (done != nullptr) done = reinterpret_cast<std::uint64_t*>(node_.here(done, ordinal_));
    }
    if (found.call.has_seats()) found.call.result = found.call.seats.recv[0];
    ++node_.network_launches;
    network_.launch(queue, found, node_.network_running, node_.network_held);
    return {};
  }
  Status load_network() override {
    EXPECT_EQ(node_.running_grids, 0) << "the driver may wait for what runs";
    network_is_loaded_ = true;
    return {};
  }
  Status pin(std::span<std::byte> memory) override {
    node_.pinned = memory;
    return {};
  }
  Status launch_behind(std::uint32_t queue, const CudaGate& gate, CudaAlgorithm algorithm,
                       const CudaAllReduce& call) override {
    EXPECT_FALSE(entry_of(algorithm).launches_all_ranks);
    ARC_RETURN_IF_ERROR(can_launch(algorithm, call));
    EXPECT_NE(queue, 0u) << "others' work is queued there";
    node_.expect_slots(algorithm, call);
    if (call.count == 0 || call.ranks < 2) {
      return error(ErrorCode::InvalidArgument, Reason::BadValue, call.count, " elements of ",
                   call.ranks, " ranks do not wait for their call");
    }
    node_.most_blocks = call.most_blocks;
    node_.launches.push_back({.launcher = this,
                              .queue = queue,
                              .parity = gate.parity,
                              .algorithm = algorithm,
                              .call = call,
                              .gate = gate});
    node_.advance();
    return {};
  }
  Result<std::unique_ptr<PreparedLaunch>> prepare(std::uint32_t queue, const CudaGate& gate,
                                                  CudaAlgorithm algorithm,
                                                  const CudaAllReduce& call) override;
  Status launch_in_stream(std::uint32_t queue, const InStreamShape& shape, DType dtype, ReduceOp op,
                          const InStreamCall& call) override {
    if (shape.blocks == 0 || !has_in_stream_kernel(dtype))
      return error(ErrorCode::InvalidArgument, Reason::BadValue, "there is no such kernel");
    for (std::uint32_t rank = 0; rank < call.ranks; ++rank) EXPECT_NE(call.exchange[rank], nullptr);
    ++node_.in_stream;
    if (node_.in_stream_wrong) return {};
    if (!node_.in_stream_fails) {
      InStreamCall own = call;
      own.say(shape.what(dtype, op, Codec::None, Collective::AllReduce), call.identity());
      put({.queue = queue},
          [run = std::make_shared<FakeInStream>(node_.in_stream_pushes, own, size_of(dtype))] {
            return run->run();
          });
      return {};
    }
    const Done why{.number = 1,
                   .code = static_cast<std::uint8_t>(ErrorCode::DeadlineExceeded),
                   .reason = static_cast<std::uint8_t>(Reason::Timeout),
                   .culprit_rank = 1};
    store_word(call.doorbells->in_stream_failed, to_word(why));
    return {};
  }
  // Numbers are floats here, whatever the type: see FakeNode::run().
  Status fill_trial(std::uint32_t queue, const TrialCall& call) override {
    put({.queue = queue}, [=, this] {
      for (std::uint64_t i = 0; i < floats_of(call); ++i) {
        trial_floats(call.send)[i] = static_cast<float>(trial_value(call.seed, call.rank, i));
        trial_floats(call.recv)[i] = std::numeric_limits<float>::quiet_NaN();
      }
      return true;
    });
    return {};
  }
  Status check_trial(std::uint32_t queue, const TrialCall& call) override {
    put({.queue = queue}, [=, this] {
      for (std::uint64_t i = 0; i < floats_of(call); ++i) {
        if (trial_floats(call.send)[i] !=
                static_cast<float>(trial_value(call.seed, call.rank, i)) ||
            trial_floats(call.recv)[i] != static_cast<float>(trial_sum(call.seed, call.ranks, i)))
          store_word(*call.wrong, i + 1);
      }
      return true;
    });
    return {};
  }
  Status launch_flag_echo(std::uint32_t queue, const FlagEchoCall& call) override {
    EXPECT_EQ(call.words, &flag_words_);
    ++node_.echoes;
    put({.queue = queue}, [this, run = std::make_shared<FakeFlagEcho>(call)] {
      const bool is_full = node_.full || node_.full_gpu == ordinal_;
      if ((is_full && !run->has_begun()) || !run->run()) return false;
      node_.echo_ended = load_word(flag_words_.ended);
      --node_.echoes;
      return true;
    });
    return {};
  }
  FlagEchoWords& flag_echo_words() override {
    node_.advance();
    return flag_words_;
  }
  Status wait_for(std::uint32_t queue, std::uint64_t* address, std::uint64_t value) override {
    EXPECT_NE(queue, 0u) << "others' work is queued there";
    EXPECT_NE(load_word(*address), value) << "nothing is held back";
    node_.launches.push_back({.launcher = this, .queue = queue, .word = address, .value = value});
    node_.advance();
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
    node_.abort(scratch);
    return {};
  }
  std::uint32_t operations_of_scratch() const override { return node_.operations_of_scratch; }
  Status start_over(std::uint32_t queue, void* scratch, std::uint32_t) override {
    EXPECT_TRUE(std::ranges::none_of(node_.launches, [&](const FakeLaunch& one) {
      return std::ranges::find(one.call.scratch, scratch) != std::end(one.call.scratch);
    })) << "a scratch that is used starts over";
    put({.queue = queue}, [=, this] {
      node_.scratches[scratch].operations = 0;
      ++node_.started_over;
      return true;
    });
    return {};
  }
  Status cancel(void* scratch, std::uint32_t number) override {
    node_.advance();  // whatever was called before has begun
    node_.scratches[scratch].cancelled = number;
    node_.advance();
    return {};
  }
  Status flush(std::chrono::nanoseconds) override { return health(); }
  Status try_atomic_128b_stores(std::span<const int> writers, void* memory,
                                std::chrono::nanoseconds timeout) override {
    EXPECT_EQ(node_.running_grids, 0) << "lines were tried while a grid ran";
    EXPECT_TRUE(node_.is_at_home(memory, ordinal_));
    std::memset(memory, 0xff, writers.size() * kLl128TestBytes);
    if (timeout < kTrial)
      return error(ErrorCode::DeadlineExceeded, Reason::Timeout, "not all were seen in time");
    const bool is_torn = std::ranges::any_of(writers, [&](int writer) {
      return node_.torn.contains({writer, ordinal_});
    });
    if (!is_torn && !(node_.torn_under_load == ordinal_ && writers.size() > 1)) return {};
    return error(ErrorCode::Unavailable, Reason::Unsupported, "7 of 20000 were torn");
  }
  Status health() override {
    if (!node_.sick) return {};
    return error(ErrorCode::Internal, Reason::None, "an illegal memory access was encountered");
  }
  std::span<RankCompletion> words() override {
    node_.advance();
    return words_;
  }

 private:
  static constexpr std::chrono::microseconds kTrial{100};

  static std::uint64_t floats_of(const TrialCall& call) {
    return call.count * size_of(kTrialType) / sizeof(float);
  }
  float* trial_floats(void* memory) const {
    EXPECT_TRUE(node_.is_at_home(memory, ordinal_));
    return static_cast<float*>(memory);
  }
  void put(QueueStream stream, std::function<bool()> act) {
    const bool is_of_copies = stream.kind == QueueStream::Kind::Copies;
    node_.launches.push_back({.launcher = this,
                              .queue = stream.queue,
                              .parity = stream.queue == 0 || is_of_copies ? 0 : stream.parity,
                              .is_of_copies = is_of_copies,
                              .act = std::move(act)});
    node_.advance();
  }

  FakeNode& node_;
  int ordinal_;
  std::vector<RankCompletion> words_;
  std::map<std::uint32_t, std::deque<std::uintptr_t>> events_;  // that serve, by queue
  FakeNetwork network_;
  bool network_is_loaded_ = false;
  FlagEchoWords flag_words_;
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
  Status launch(std::uint32_t parity) override {
    ++node_.prepared_used;
    return launch_(parity);
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
      std::make_unique<FakePreparedLaunch>(node_, [=, this](std::uint32_t parity) {
        CudaGate own = gate;
        own.parity = parity;
        return launch_behind(queue, own, algorithm, call);
      }));
}

}  // namespace arcomm::test
