#include "client/arctl/bench/rank_worker.h"

#include <sys/mman.h>

#include <array>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <string>
#include <utility>

#include "client/arctl/bench/accuracy/rank.h"
#include "client/arctl/bench/pattern.h"

namespace arcomm::arctl {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::uint32_t kWindow = 16;  // operations in flight when throughput is timed

double us_since(Clock::time_point start) {
  return std::chrono::duration<double, std::micro>(Clock::now() - start).count();
}

class Buffer {
 public:
  static Result<Buffer> allocate(std::uint64_t bytes, RankMemory memory) {
    Buffer buffer(std::max<std::uint64_t>(bytes, 4096), memory);
    if (memory == RankMemory::Shared) {
      ARC_RETURN_IF_ERROR(status_of(arcMemAlloc(&buffer.data_, buffer.bytes_)));
      return buffer;
    }
    // Plain pages of this process's own, which nobody shares and no owner of shared mappings is
    // for: not from the heap, so that they are fresh and begin at a page, as registering wants.
    void* data =
        ::mmap(nullptr, buffer.bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (data == MAP_FAILED) {
      return error(ErrorCode::ResourceExhausted, Reason::OutOfMemory, "cannot allocate ", bytes,
                   " bytes");
    }
    buffer.data_ = data;
    if (memory == RankMemory::Registered)
      ARC_RETURN_IF_ERROR(status_of(arcMemRegister(data, buffer.bytes_)));
    return buffer;
  }
  Buffer(Buffer&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)), bytes_(other.bytes_), memory_(other.memory_) {}
  Buffer& operator=(Buffer&&) = delete;
  ~Buffer() {
    if (data_ == nullptr) return;
    if (memory_ == RankMemory::Shared) {
      arcMemFree(data_);
      return;
    }
    if (memory_ == RankMemory::Registered) arcMemDeregister(data_);
    ::munmap(data_, bytes_);
  }
  std::byte* data() const { return static_cast<std::byte*>(data_); }

 private:
  Buffer(std::uint64_t bytes, RankMemory memory) : bytes_(bytes), memory_(memory) {}

  void* data_ = nullptr;
  std::uint64_t bytes_;
  RankMemory memory_;
};

class Worker {
 public:
  Worker(const RankBoard& board, Rank rank, arcComm_t comm, Buffer& send, Buffer& recv)
      : board_(board), rank_(rank), comm_(comm), send_(send), recv_(recv), accuracy_(board, rank) {}

  Status run_cases() {
    return board_.serve(rank_, [this](const BenchCase& what) { return run(what); });
  }

 private:
  Status run(const BenchCase& what) {
    if (what.kind == CaseKind::Accuracy) {
      return accuracy_.run(what, send_.data(), recv_.data(),
                           [&] { return reduce(what, send_.data(), recv_.data()); });
    }
    const Pattern pattern(what.dtype, what.op, board_.page().ranks, what.codec);
    const std::byte* in = send_.data();
    std::byte* out = what.in_place ? send_.data() : recv_.data();
    // Repeating a sum in place grows without bound, and infinities may be slower: those are timed
    // on zeros and checked by a run of their own.
    const bool on_zeros = what.in_place && (what.op == ReduceOp::Sum || what.op == ReduceOp::Prod);
    if (on_zeros) {
      std::memset(out, 0, what.bytes());
    } else {
      pattern.fill(send_.data(), what.count, rank_);
    }
    RankSlot& slot = board_.page().slots[rank_];
    ARC_RETURN_IF_ERROR(open_plan(what, in, out));
    Status timed = warm_up_then_time(what, in, out);
    ARC_RETURN_IF_ERROR(close_plan());
    ARC_RETURN_IF_ERROR(std::move(timed));
    slot.wrong = on_zeros ? nonzero(out, what.count, what.dtype) : pattern.wrong(out, what.count);
    if (on_zeros) {
      pattern.fill(send_.data(), what.count, rank_);
      ARC_RETURN_IF_ERROR(reduce(what, in, out));
      slot.wrong += pattern.wrong(out, what.count);
    }
    return {};
  }

  Status warm_up_then_time(const BenchCase& what, const std::byte* in, std::byte* out) {
    for (std::uint32_t i = 0; i < what.warmup; ++i) ARC_RETURN_IF_ERROR(once(what, in, out));
    if (!what.in_place)
      std::memset(out, 0xa5, what.bytes());  // a result that nobody writes is noticed
    for (std::uint32_t round = 0; round < what.rounds; ++round) {
      ARC_RETURN_IF_ERROR(
          board_.meet(Clock::now() + std::chrono::milliseconds(2 * board_.page().timeout_ms)));
      ARC_RETURN_IF_ERROR(time_round(what, in, out));
    }
    return {};
  }

  Status time_round(const BenchCase& what, const std::byte* in, std::byte* out) {
    const auto start = Clock::now();
    switch (what.timing) {
      case Timing::Latency:
        for (std::uint32_t i = 0; i < what.iterations; ++i)
          ARC_RETURN_IF_ERROR(once(what, in, out));
        break;
      case Timing::Throughput:
      case Timing::CudaEvents:  // GPUs only
        ARC_RETURN_IF_ERROR(pipelined(what, in, out));
        break;
      case Timing::Each:
        for (std::uint32_t i = 0; i < what.iterations; ++i) {
          const auto began = Clock::now();
          ARC_RETURN_IF_ERROR(once(what, in, out));
          sample(us_since(began));
        }
        return {};
    }
    sample(us_since(start) / what.iterations);
    return {};
  }

  Status pipelined(const BenchCase& what, const std::byte* in, std::byte* out) {
    std::array<arcTicket_t, kWindow> tickets{};
    for (std::uint32_t i = 0; i < what.iterations + kWindow; ++i) {
      arcTicket_t& ticket = tickets[i % kWindow];
      if (ticket != 0) ARC_RETURN_IF_ERROR(status_of(arcWait(std::exchange(ticket, 0), 0)));
      if (i >= what.iterations) continue;
      const arcAllReduceConfig_t config = config_of(what);
      ARC_RETURN_IF_ERROR(status_of(arcAllReduceAsyncWith(
          in, out, what.count, dtype_of(what), op_of(what), &config, comm_, nullptr, &ticket)));
      beat();
    }
    return {};
  }

  Status once(const BenchCase& what, const std::byte* in, std::byte* out) {
    if (plan_ == nullptr) return reduce(what, in, out);
    beat();
    ARC_RETURN_IF_ERROR(status_of(arcPlanStart(plan_, nullptr)));
    return status_of(arcPlanWait(plan_, 0));
  }

  Status reduce(const BenchCase& what, const std::byte* in, std::byte* out) {
    beat();
    // Without one it is what applications call.
    if (what.codec == Codec::None) {
      return status_of(
          arcAllReduce(in, out, what.count, dtype_of(what), op_of(what), comm_, nullptr));
    }
    const arcAllReduceConfig_t config = config_of(what);
    return status_of(arcAllReduceWith(in, out, what.count, dtype_of(what), op_of(what), &config,
                                      comm_, nullptr));
  }

  Status open_plan(const BenchCase& what, const std::byte* in, std::byte* out) {
    if (!what.persistent) return {};
    const arcAllReduceConfig_t config = config_of(what);
    return status_of(arcPlanCreateAllReduceWith(&plan_, in, out, what.count, dtype_of(what),
                                                op_of(what), &config, comm_));
  }

  Status close_plan() {
    return plan_ == nullptr ? Status() : status_of(arcPlanDestroy(std::exchange(plan_, nullptr)));
  }

  void sample(double us) { board_.sample(rank_, us); }
  void beat() { board_.beat(rank_); }

  static arcAllReduceConfig_t config_of(const BenchCase& what) {
    arcAllReduceConfig_t config = ARC_ALL_REDUCE_CONFIG_INITIALIZER;
    config.codec = static_cast<arcCodec_t>(what.codec);
    return config;
  }
  static arcDataType_t dtype_of(const BenchCase& what) {
    return static_cast<arcDataType_t>(what.dtype);
  }
  static arcRedOp_t op_of(const BenchCase& what) { return static_cast<arcRedOp_t>(what.op); }

  const RankBoard& board_;
  const Rank rank_;
  arcComm_t comm_;
  Buffer& send_;
  Buffer& recv_;
  arcPlan_t plan_ = nullptr;
  AccuracyRank accuracy_;
};

Status run_attached(const RankBoard& board, Rank rank) {
  const BoardPage& page = board.page();
  arcComm_t comm = nullptr;
  ARC_RETURN_IF_ERROR(status_of(arcCommInitRank(&comm, page.ranks, page.unique_id, rank)));
  Result<Buffer> send = Buffer::allocate(page.buffer_bytes, page.memory);
  if (!send) return std::move(send).error();
  Result<Buffer> recv = Buffer::allocate(page.buffer_bytes, page.memory);
  if (!recv) return std::move(recv).error();
  Status ran = Worker(board, rank, comm, *send, *recv).run_cases();
  const arcResult_t left = ran.ok() ? arcCommDestroy(comm) : arcCommAbort(comm);
  ARC_RETURN_IF_ERROR(std::move(ran));
  return status_of(left);
}

}  // namespace

ExitCode run_rank(const RankBoard& board, Rank rank, const std::string& runtime_dir) {
  arcConfig_t config = ARC_CONFIG_INITIALIZER;
  config.runtime_dir = runtime_dir.empty() ? nullptr : runtime_dir.c_str();
  config.timeout_ms = board.page().timeout_ms;
  // Ranks of one node's host: a daemon that serves GPUs would give each of them the first GPU.
  const char* device = std::getenv("ARCOMM_DEVICE");
  if (device == nullptr || *device == '\0') config.device = "host:0";
  const std::uint64_t in_call = board.page().most_in_call_bytes;
  if (in_call != 0) ::setenv("ARCOMM_IN_CALL_BYTES", std::to_string(in_call).c_str(), 1);
  Status ran = status_of(arcInit(&config));
  if (ran.ok()) {
    ran = run_attached(board, rank);
    arcFinalize();
  }
  if (ran.ok()) return ExitCode::Ok;
  board.fail(rank, ran.error());
  return exit_code_for(ran.error());
}

}  // namespace arcomm::arctl
