// The build with CUDA: kernels and queues of one GPU.
#include <algorithm>
#include <array>
#include <chrono>
#include <utility>
#include <vector>

#include "daemon/exec/gpu/hardware/gpu_hardware.h"
#include "daemon/exec/specs.h"
#include "daemon/telemetry/log/log.h"
#include "kernels/in_stream/kernels.h"
#include "kernels/launch/cuda_event_ring.h"
#include "kernels/launch/cuda_queue.h"
#include "kernels/launch/gpu_properties.h"
#include "kernels/launch/pinned_page.h"
#include "kernels/launch/stack_limit.h"
#include "transport/device/device.h"

namespace arcomm {
namespace {

constexpr std::uint64_t kMaxRankCompletions = kMaxRanksOfGpu;
// In the pinned page: those of ranks, and one for the GPU's health; behind them the words of
// echoes.
constexpr std::uint64_t kCompletionsInPage = kMaxRankCompletions + 1;
constexpr std::uint64_t kPinnedBytes =
    kCompletionsInPage * sizeof(RankCompletion) + sizeof(FlagEchoWords);
static_assert(sizeof(RankCompletion) % alignof(FlagEchoWords) == 0);
constexpr auto kTrialTimeout = std::chrono::milliseconds(500);

constexpr std::uint32_t kParities = 2;
// Fewer streams than there are channels (32), also with the grid's and one path of copies for each.
constexpr std::uint32_t kOwnQueues = 8;

class CudaPreparedLaunch final : public PreparedLaunch {
 public:
  struct Part {
    PreparedAllReduce prepared;
    void* stream = nullptr;
  };
  explicit CudaPreparedLaunch(std::array<Part, kParities> parts) : parts_(std::move(parts)) {}
  Status launch(std::uint32_t parity) override {
    return parts_[parity].prepared.launch(parts_[parity].stream);
  }

 private:
  std::array<Part, kParities> parts_;
};

class CudaLauncher final : public GpuLauncher {
 public:
  // queues: the shared one first, then those of each rank, one for each parity.
  // copies, events: by queue.
  CudaLauncher(std::vector<CudaQueue> queues, CudaQueue beside, std::vector<CudaQueue> copies,
               std::vector<CudaEventRing> events, PinnedPage page,
               std::unique_ptr<InStreamKernels> in_stream)
      : page_(std::move(page)),
        in_stream_(std::move(in_stream)),
        queues_(std::move(queues)),
        beside_(std::move(beside)),
        copies_(std::move(copies)),
        events_(std::move(events)),
        copies_may_run_(copies_.size()) {}
  ~CudaLauncher() override {
    // What may still run writes there, and giving it back would wait for that.
    const auto runs = [](const CudaQueue& queue) {
      const Result<bool> idle = queue.idle();
      return idle && !*idle;
    };
    if (std::ranges::any_of(queues_, runs) || runs(beside_)) page_.keep();
  }
  CudaLauncher(const CudaLauncher&) = delete;
  CudaLauncher& operator=(const CudaLauncher&) = delete;

  std::uint32_t own_queues() const override {
    return (static_cast<std::uint32_t>(queues_.size()) - 1) / kParities;
  }
  Status launch(std::uint32_t queue, std::uint32_t parity, CudaAlgorithm algorithm,
                const CudaAllReduce& call) override {
    return launch_all_reduce(algorithm, here(call), CudaShape{}, of(queue, parity).stream());
  }
  Result<QueueEvent> record(QueueStream stream) override {
    void* const event = events_[stream.queue].next();
    ARC_RETURN_IF_ERROR(of(stream).record(event));
    return QueueEvent{reinterpret_cast<std::uintptr_t>(event)};
  }
  Status wait(QueueStream stream, QueueEvent event) override {
    return of(stream).wait_event(reinterpret_cast<void*>(event.id));
  }
  Status copy(std::uint32_t queue, void* to, const void* from, std::uint64_t bytes) override {
    return of({.queue = queue, .kind = QueueStream::Kind::Copies}).copy(to, from, bytes);
  }
  Status combine(std::uint32_t queue, std::uint32_t parity, const CombineCall& call) override {
    ARC_RETURN_IF_ERROR(of(queue, parity).make_current());
    return launch_combine(call, of(queue, parity).stream());
  }
  Status launch_network(std::uint32_t queue, const NetworkLaunch& launch) override {
    ARC_RETURN_IF_ERROR(of(queue).make_current());
    return launch_network_exchange(launch, of(queue).stream());
  }
  Status load_network() override {
    ARC_RETURN_IF_ERROR(beside_.make_current());
    return load_network_kernels();
  }
  Status pin(std::span<std::byte> memory) override {
    ARC_RETURN_IF_ERROR(beside_.make_current());
    return pin_host_memory(memory.data(), memory.size());
  }
  Status launch_behind(std::uint32_t queue, const CudaGate& gate, CudaAlgorithm algorithm,
                       const CudaAllReduce& call) override {
    return launch_all_reduce_behind(gate, algorithm, here(call), CudaShape{},
                                    of(queue, gate.parity).stream());
  }
  Result<std::unique_ptr<PreparedLaunch>> prepare(std::uint32_t queue, const CudaGate& gate,
                                                  CudaAlgorithm algorithm,
                                                  const CudaAllReduce& call) override {
    std::array<CudaPreparedLaunch::Part, kParities> parts;
    for (std::uint32_t parity = 0; parity < kParities; ++parity) {
      CudaGate own = gate;
      own.parity = parity;
      parts[parity].stream = of(queue, parity).stream();
      Result<PreparedAllReduce> prepared =
          PreparedAllReduce::create(own, algorithm, here(call), CudaShape{}, parts[parity].stream);
      if (!prepared) return std::move(prepared).error();
      parts[parity].prepared = std::move(prepared).value();
    }
    return std::unique_ptr<PreparedLaunch>(std::make_unique<CudaPreparedLaunch>(std::move(parts)));
  }
  Status launch_in_stream(std::uint32_t queue, const InStreamShape& shape, DType dtype, ReduceOp op,
                          const InStreamCall& call) override {
    if (in_stream_ == nullptr) {
      return error(ErrorCode::Internal, Reason::None,
                   "the kernels that clients launch could not be loaded here: see the start of the "
                   "daemon's log");
    }
    ARC_RETURN_IF_ERROR(of(queue).make_current());
    return in_stream_->launch(shape, dtype, op, call, of(queue).stream());
  }
  Status fill_trial(std::uint32_t queue, const TrialCall& call) override {
    ARC_RETURN_IF_ERROR(of(queue).make_current());
    return launch_trial_fill(call, of(queue).stream());
  }
  Status check_trial(std::uint32_t queue, const TrialCall& call) override {
    ARC_RETURN_IF_ERROR(of(queue).make_current());
    return launch_trial_check(call, of(queue).stream());
  }
  Status launch_flag_echo(std::uint32_t queue, const FlagEchoCall& call) override {
    ARC_RETURN_IF_ERROR(of(queue).make_current());
    return arcomm::launch_flag_echo(call, of(queue).stream());
  }
  FlagEchoWords& flag_echo_words() override {
    return *reinterpret_cast<FlagEchoWords*>(static_cast<RankCompletion*>(page_.host()) +
                                             kCompletionsInPage);
  }
  Status wait_for(std::uint32_t queue, std::uint64_t* address, std::uint64_t value) override {
    return of(queue).wait_equal(address, value);
  }
  Result<bool> idle(std::uint32_t queue) override {
    if (copies_may_run_[queue]) {
      Result<bool> copied = copies_[queue].idle();
      if (!copied || !*copied) return copied;
      copies_may_run_[queue] = false;
    }
    Result<bool> first = of(queue).idle();
    if (queue == 0 || !first || !*first) return first;
    return of(queue, 1).idle();
  }
  Status store(std::uint64_t* address, std::uint64_t value) override {
    return beside_.store(address, value);
  }
  Status abort(void* scratch) override {
    ARC_RETURN_IF_ERROR(beside_.make_current());
    return abort_all_reduce(scratch, beside_.stream());
  }
  std::uint32_t operations_of_scratch() const override { return kOperationsOfScratch; }
  Status start_over(std::uint32_t queue, void* scratch, std::uint32_t ranks) override {
    ARC_RETURN_IF_ERROR(of(queue).make_current());
    return arcomm::start_over(scratch, ranks, of(queue).stream());
  }
  Status cancel(void* scratch, std::uint32_t number) override {
    return beside_.store(cancel_word(scratch), number);
  }
  Status flush(std::chrono::nanoseconds timeout) override { return beside_.drain(timeout); }
  Status try_atomic_128b_stores(std::span<const int> writers, void* memory,
                                std::chrono::nanoseconds timeout) override {
    const Result<Ll128Verdict> verdict =
        test_ll128_lines(writers, queues_[0].ordinal(), memory, timeout);
    if (!verdict) return verdict.error();
    if (verdict->lines_are_whole()) return {};
    return error(ErrorCode::Unavailable, Reason::Unsupported, verdict->torn, " of ",
                 verdict->changes, " were torn; ", kFewestLl128Changes, " whole ones are needed");
  }
  Status health() override {
    if (Result<bool> idle = queues_[0].idle(); !idle) return std::move(idle).error();
    Result<bool> idle = beside_.idle();
    if (!idle) return std::move(idle).error();
    // What others broke shows where there is something to do: it is asked for, and looked at the
    // next time. Never more than one word, as nothing may be doing any of it.
    return *idle ? beside_.store(alive_word(), 1) : Status();
  }
  std::span<RankCompletion> words() override {
    return {static_cast<RankCompletion*>(page_.host()), kMaxRankCompletions};
  }

 private:
  // Behind those of the ranks.
  std::uint64_t* alive_word() const {
    return &(static_cast<RankCompletion*>(page_.host()) + kMaxRankCompletions)->done;
  }
  CudaAllReduce here(const CudaAllReduce& call) const {
    CudaAllReduce on_this_gpu = call;
    on_this_gpu.ordinal = beside_.ordinal();
    return on_this_gpu;
  }
  // The shared one takes no turns.
  const CudaQueue& of(std::uint32_t queue, std::uint32_t parity = 0) const {
    return queues_[queue == 0 ? 0 : 1 + (queue - 1) * kParities + parity];
  }
  const CudaQueue& of(QueueStream stream) {
    if (stream.kind == QueueStream::Kind::Launches) return of(stream.queue, stream.parity);
    copies_may_run_[stream.queue] = true;
    return copies_[stream.queue];
  }

  PinnedPage page_;  // these two first: kernels in the queues write there, or are of them
  std::unique_ptr<InStreamKernels> in_stream_;  // none where they could not be loaded
  std::vector<CudaQueue> queues_;
  CudaQueue beside_;
  std::vector<CudaQueue> copies_;
  std::vector<CudaEventRing> events_;
  std::vector<bool> copies_may_run_;  // by queue: something was put into its copies
};

// Whether a wait in every own queue leaves the shared one and the one beside alone: streams share
// the GPU's channels where there are too few, and what waits in a channel holds up all in it. The
// words lie in pinned memory, so that the waits can be ended without a stream.
Status try_own_queues(const std::vector<CudaQueue>& queues, const CudaQueue& beside,
                      PinnedPage& page) {
  auto* words = static_cast<std::uint64_t*>(page.host());
  Status held;
  for (std::size_t queue = 1; queue < queues.size() && held; ++queue)
    held = queues[queue].wait_equal(&words[0], 1);
  for (const CudaQueue* queue : {&queues[0], &beside}) {
    if (held) held = queue->store(&words[8], 1);
    if (held) held = queue->drain(kTrialTimeout);
  }
  __atomic_store_n(&words[0], 1, __ATOMIC_RELEASE);
  for (const CudaQueue& queue : queues) {
    const Status ended = queue.drain(kTrialTimeout);
    if (held) held = ended;
  }
  if (const Status ended = beside.drain(kTrialTimeout); held) held = ended;
  words[0] = words[8] = 0;
  return held;
}

// The shared queue, and those of single ranks where the GPU can have them.
Result<std::vector<CudaQueue>> open_queues(const Device& device, const CudaQueue& beside,
                                           PinnedPage& page) {
  std::vector<CudaQueue> queues;
  for (std::uint32_t queue = 0; queue <= kOwnQueues * kParities; ++queue) {
    Result<CudaQueue> made = CudaQueue::create(device.ordinal());
    if (!made) return std::move(made).error();
    queues.push_back(std::move(made).value());
  }
  const Status apart = try_own_queues(queues, beside, page);
  if (apart) return queues;
  log::warn(
      "{}: nothing is launched speculatively here, as a queue that waits would hold up "
      "others: {}",
      device.name(), apart.error().message);
  queues.erase(queues.begin() + 1, queues.end());
  return queues;
}

}  // namespace

Result<GpuHardware> open_gpu(Device& device) {
  const int ordinal = device.ordinal();
  Result<CudaQueue> beside = CudaQueue::create(ordinal);  // makes the GPU current
  if (!beside) return std::move(beside).error();
  Result<PinnedPage> page = PinnedPage::create(kPinnedBytes);
  if (!page) return std::move(page).error();
  Result<std::vector<CudaQueue>> queues = open_queues(device, *beside, *page);
  if (!queues) return std::move(queues).error();
  std::vector<CudaQueue> copies;
  std::vector<CudaEventRing> events;
  for (std::size_t queue = 0; queue <= (queues->size() - 1) / kParities; ++queue) {
    Result<CudaQueue> stream = CudaQueue::create(ordinal);
    if (!stream) return std::move(stream).error();
    copies.push_back(std::move(stream).value());
    Result<CudaEventRing> ring = CudaEventRing::create(ordinal, kQueueEvents);
    if (!ring) return std::move(ring).error();
    events.push_back(std::move(ring).value());
  }
  // Before any is launched here: what is loaded below says what is needed.
  ARC_RETURN_IF_ERROR(give_back_stacks());
  ARC_RETURN_IF_ERROR(load_all_reduce_kernels());
  ARC_RETURN_IF_ERROR(load_gate_kernel());
  ARC_RETURN_IF_ERROR(load_trial_kernels());
  ARC_RETURN_IF_ERROR(load_flag_echo_kernel());
  Result<std::unique_ptr<InStreamKernels>> in_stream = InStreamKernels::load();
  if (!in_stream) {
    log::warn("{}: arctl tune cannot measure in-stream operations: {}", device.name(),
              in_stream.error().message);
  }
  Result<std::unique_ptr<ResidentGrid>> grid = ResidentGrid::create(ordinal);
  if (!grid) return std::move(grid).error();
  return GpuHardware{
      std::move(grid).value(),
      std::make_unique<CudaLauncher>(std::move(queues).value(), std::move(beside).value(),
                                     std::move(copies), std::move(events), std::move(page).value(),
                                     in_stream ? std::move(in_stream).value() : nullptr),
      resident_scratch_bytes(), sms_of(ordinal), in_stream_kernel_images()};
}

}  // namespace arcomm
