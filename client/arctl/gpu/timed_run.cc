#include "client/arctl/gpu/timed_run.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstring>
#include <utility>

#include "client/arctl/gpu/batches.h"

namespace arcomm::arctl {
namespace {

constexpr std::size_t kInputs = 4;          // each of them as many as it has elements
constexpr unsigned char kPoison = 0xff;     // NaNs, and not those that a sum gives
constexpr std::uint64_t kGuardBytes = 512;  // poisoned behind a result
// An operation says itself that it is late; the stream has as long as the slowest machine takes for
// all that is on it: a millisecond for each, and a second for a gigabyte.
constexpr std::chrono::milliseconds kMore{2000};
constexpr std::chrono::nanoseconds kEach{1'000'000}, kByte{1};
constexpr std::chrono::milliseconds kBeat{500};

double us_from(GpuDevice::Clock::time_point start) {
  return std::chrono::duration<double, std::micro>(GpuDevice::Clock::now() - start).count();
}

// Repeating them in place grows without bound.
bool is_on_zeros(const BenchCase& what) {
  return what.in_place && (what.op == ReduceOp::Sum || what.op == ReduceOp::Prod);
}

}  // namespace

Result<TimedRun> TimedRun::create(const RankBoard& board, Rank rank, GpuDevice& device) {
  Result<std::byte*> pinned = device.allocate_pinned(kWholeBytes + kSlackBytes);
  if (!pinned) return std::move(pinned).error();
  return TimedRun(board, rank, device, *pinned);
}

void TimedRun::draw_inputs(const BenchCase& what) {
  if (zeros_ && dtype_ == what.dtype && op_ == what.op) return;
  dtype_ = what.dtype;
  op_ = what.op;
  inputs_.clear();
  for (std::size_t seed = 0; seed < kInputs; ++seed)
    inputs_.emplace_back(what.dtype, what.op, board_.page().ranks, rank_, seed);
  zeros_ = GpuInputs::zeros(what.dtype);
}

TimedRun::Batch TimedRun::draw_batch(const BenchCase& what, const GpuContender& contender) {
  const GpuInputs& inputs = inputs_[random_() % kInputs];
  const std::uint64_t shift = random_() % kPeriod;
  const GpuBuffers buffers = contender.buffers();
  return {.inputs = is_on_zeros(what) ? *zeros_ : inputs,
          .shift = shift,
          .in = what.in_place ? buffers.recv : buffers.send,
          .out = buffers.recv};
}

Status TimedRun::run(const BenchCase& what, GpuContender& contender) {
  draw_inputs(what);
  board_.beat(rank_);
  const GpuBuffers buffers = contender.buffers();
  const std::byte* const in = what.in_place ? buffers.recv : buffers.send;
  const auto once = [&] {
    return contender.all_reduce(in, buffers.recv, what.count, what.dtype, what.op, what.codec);
  };
  if (!what.in_graph) {
    const Enqueue calls = [&](std::uint32_t operations) -> Status {
      for (std::uint32_t i = 0; i < operations; ++i) {
        ARC_RETURN_IF_ERROR(once());
        board_.beat(rank_);  // calls wait where a stream is full
      }
      return {};
    };
    ARC_RETURN_IF_ERROR(time(what, contender, calls));
  } else {
    const std::uint32_t chain = what.timing == Timing::Each ? 1 : kChain;
    const Result<std::unique_ptr<GpuGraph>> graph = device_.capture([&]() -> Status {
      for (std::uint32_t i = 0; i < chain; ++i) ARC_RETURN_IF_ERROR(once());
      return {};
    });
    if (!graph) return graph.error();
    const Enqueue replays = [&](std::uint32_t operations) -> Status {
      for (std::uint32_t i = 0; i < operations; i += chain) {
        ARC_RETURN_IF_ERROR((*graph)->launch());
        board_.beat(rank_);
      }
      return {};
    };
    ARC_RETURN_IF_ERROR(time(what, contender, replays));
  }
  return is_on_zeros(what) ? check_once(what, contender) : Status();
}

Status TimedRun::time(const BenchCase& what, GpuContender& contender, const Enqueue& enqueue) {
  const std::string where = " of " + std::string(text_of(what.contender)) +
                            (what.in_graph ? " in a graph" : " on a stream") + ", batch ";
  for (std::uint32_t number = 0; number <= what.rounds; ++number) {
    const bool is_warmup = number == 0;
    if (is_warmup && what.warmup == 0) continue;
    const Batch batch = draw_batch(what, contender);
    ARC_RETURN_IF_ERROR(prepare(what, batch));
    ARC_RETURN_IF_ERROR(wait(what, 1));  // or calls would gather behind the inputs
    ARC_RETURN_IF_ERROR(all_here());
    ARC_RETURN_IF_ERROR(contender.meet());  // and the GPUs, within a microsecond or two
    if (is_warmup) {
      ARC_RETURN_IF_ERROR(enqueue(what.warmup));
      ARC_RETURN_IF_ERROR(finish(what, what.warmup, contender));
      continue;
    }
    if (what.timing == Timing::CudaEvents) {
      ARC_RETURN_IF_ERROR(device_.record(GpuDevice::Mark::Begin));
      ARC_RETURN_IF_ERROR(enqueue(what.iterations));
      ARC_RETURN_IF_ERROR(device_.record(GpuDevice::Mark::End));
      ARC_RETURN_IF_ERROR(finish(what, what.iterations, contender));
      const Result<double> us = device_.between_us();
      if (!us) return us.error();
      board_.sample(rank_, *us / what.iterations);
    } else {
      ARC_RETURN_IF_ERROR(finish(what, 1, contender));
      ARC_RETURN_IF_ERROR(all_here());
      const bool each = what.timing == Timing::Each;
      const std::uint32_t at_once = each ? 1 : what.iterations;
      for (std::uint32_t done = 0; done < what.iterations; done += at_once) {
        const auto start = GpuDevice::Clock::now();
        ARC_RETURN_IF_ERROR(enqueue(at_once));
        ARC_RETURN_IF_ERROR(wait(what, at_once, start));
        board_.sample(rank_, us_from(start) / at_once);
      }
      ARC_RETURN_IF_ERROR(finish(what, 1, contender));
    }
    ARC_RETURN_IF_ERROR(check(what, batch, where + std::to_string(number)));
  }
  return {};
}

// What nobody writes is poisoned before, the result as what is behind it.
Status TimedRun::prepare(const BenchCase& what, const Batch& batch) {
  const std::uint64_t element = size_of(what.dtype), bytes = what.bytes();
  const std::uint64_t from = what.in_place ? bytes : 0;
  ARC_RETURN_IF_ERROR(device_.fill(batch.out + from, kPoison, bytes - from + kGuardBytes));
  const auto put = [&](std::uint64_t at, const std::byte* source, std::uint64_t count) -> Status {
    if (at >= what.count || count == 0) return {};
    return device_.upload(batch.in + at * element, source,
                          std::min(count, what.count - at) * element);
  };
  const std::byte* const period = batch.inputs.mine().data();
  ARC_RETURN_IF_ERROR(put(0, period + batch.shift * element, kPeriod - batch.shift));
  ARC_RETURN_IF_ERROR(put(kPeriod - batch.shift, period, batch.shift));
  for (std::uint64_t done = kPeriod; done < what.count; done *= 2) {
    ARC_RETURN_IF_ERROR(device_.copy(batch.in + done * element, batch.in,
                                     std::min(done, what.count - done) * element));
  }
  return {};
}

Status TimedRun::check(const BenchCase& what, const Batch& batch, const std::string& where) {
  const std::uint64_t element = size_of(what.dtype);
  const std::vector<Window> windows = windows_of(what.count, element, random_);
  std::byte* to = pinned_;
  for (const Window& window : windows) {
    ARC_RETURN_IF_ERROR(
        device_.download(to, batch.out + window.first * element, window.count * element));
    to += window.count * element;
  }
  ARC_RETURN_IF_ERROR(device_.download(to, batch.out + what.bytes(), kGuardBytes));
  ARC_RETURN_IF_ERROR(wait(what, 1));
  const Codec codec = what.contender == Contender::Arcommd ? what.codec : Codec::None;
  std::string first;
  std::uint64_t wrong = 0, checked = 0;
  const std::byte* got = pinned_;
  for (const Window& window : windows) {
    wrong += batch.inputs.wrong(got, batch.shift, window.first, window.count,
                                wrong == 0 ? &first : nullptr, codec);
    got += window.count * element;
    checked += window.count * element;
  }
  std::array<unsigned char, kGuardBytes> untouched;
  untouched.fill(kPoison);
  if (std::memcmp(got, untouched.data(), untouched.size()) != 0) {
    if (wrong == 0) first = "what is behind it was touched";
    ++wrong;
  }
  RankSlot& slot = board_.page().slots[rank_];
  if (wrong != 0 && slot.wrong == 0) {
    board_.note(rank_, "rank " + std::to_string(rank_) + ", " + std::to_string(what.bytes()) +
                           " bytes" + where + ": " + first);
  }
  slot.wrong += wrong;
  slot.checked_bytes = checked;
  board_.beat(rank_);
  return {};
}

Status TimedRun::check_once(const BenchCase& what, GpuContender& contender) {
  const GpuBuffers buffers = contender.buffers();
  const Batch batch{.inputs = inputs_[random_() % kInputs],
                    .shift = random_() % kPeriod,
                    .in = buffers.recv,
                    .out = buffers.recv};
  const auto once = [&] {
    return contender.all_reduce(batch.in, batch.out, what.count, what.dtype, what.op, what.codec);
  };
  std::unique_ptr<GpuGraph> graph;  // of one: a chain would sum up what it has summed
  if (what.in_graph) {
    Result<std::unique_ptr<GpuGraph>> captured = device_.capture(once);
    if (!captured) return std::move(captured).error();
    graph = std::move(*captured);
  }
  ARC_RETURN_IF_ERROR(prepare(what, batch));
  ARC_RETURN_IF_ERROR(all_here());
  ARC_RETURN_IF_ERROR(graph ? graph->launch() : once());
  ARC_RETURN_IF_ERROR(finish(what, 1, contender));
  return check(what, batch,
               " of " + std::string(text_of(what.contender)) +
                   (what.in_graph ? " in a graph" : " on a stream") + ", once in place");
}

Status TimedRun::wait(const BenchCase& what, std::uint32_t operations,
                      GpuDevice::Clock::time_point from) {
  const GpuDevice::Clock::time_point deadline =
      from + std::chrono::milliseconds(board_.page().timeout_ms) + kMore +
      (kEach + what.bytes() * kByte) * operations;
  // No clock is read here: what is waited for may be timed.
  for (GpuDevice::Clock::time_point next = from + kBeat;; next += kBeat) {
    Status waited = device_.wait(std::min(next, deadline));
    const bool late = !waited.ok() && waited.error().code == ErrorCode::DeadlineExceeded;
    if (!late || next >= deadline) return waited;
    board_.beat(rank_);
  }
}

Status TimedRun::all_here() {
  return board_.meet(GpuDevice::Clock::now() +
                     std::chrono::milliseconds(2 * board_.page().timeout_ms));
}

Status TimedRun::finish(const BenchCase& what, std::uint32_t operations, GpuContender& contender) {
  Status waited = wait(what, operations);
  // Its own word for what went wrong says more than that the stream is late.
  ARC_RETURN_IF_ERROR(contender.outcome());
  return waited;
}

}  // namespace arcomm::arctl
