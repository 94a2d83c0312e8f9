// The owner's side of a resident grid: its table, its stream and the words that it writes back.
#include <cuda_runtime_api.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstring>

#include "kernels/device/cuda_error.cuh"
#include "kernels/launch/cuda_queue.h"
#include "kernels/launch/pinned_page.h"
#include "kernels/resident/table.cuh"

namespace arcomm {

using device::BlockWords;
using device::kResidentBlocks;
using device::MemberEntry;
using device::Pending;
using device::PlanEntry;
using device::ResidentTable;

std::uint64_t resident_scratch_bytes() {
  return device::kScratchBytes;
}

namespace {

// Of a store or a copy to the GPU, which need no SM; and of the grid's leaving.
constexpr std::chrono::milliseconds kWriteLimit{40};
constexpr std::chrono::milliseconds kLastPauseLimit{1000};
// Of clearing the table, at the start, when other processes may use the GPU by turns.
constexpr std::chrono::milliseconds kClearLimit{5000};
// Where there is room it takes 10 us.
constexpr std::chrono::microseconds kStartLimit{200};
// From the last block's word that it leaves to the end of the launch.
constexpr std::chrono::milliseconds kEndLimit{5};

// What the grid writes of one member, each on a line of its own.
struct alignas(128) MemberWords {
  std::uint64_t done;
  std::uint64_t failed;
};

template <typename T>
T load(const T& word) {
  return __atomic_load_n(&word, __ATOMIC_ACQUIRE);
}

class Grid final : public ResidentGrid {
 public:
  static Result<std::unique_ptr<ResidentGrid>> open(int ordinal) {
    auto grid = std::make_unique<Grid>(ordinal);
    cudaError_t opened = cudaSetDevice(ordinal);
    if (opened == cudaSuccess) opened = device::load_resident();
    void* table = nullptr;
    if (opened == cudaSuccess) opened = cudaMalloc(&table, sizeof(ResidentTable));
    if (opened != cudaSuccess) return device::cuda_error(opened, "preparing the resident kernel");
    grid->table_ = static_cast<ResidentTable*>(table);
    for (CudaQueue* queue : {&grid->kernel_, &grid->side_}) {
      Result<CudaQueue> made = CudaQueue::create(ordinal);
      if (!made) return made.error();
      *queue = std::move(*made);
    }
    for (auto [page, bytes] : {std::pair{&grid->words_, sizeof(MemberWords) * kResidentMembers},
                               std::pair{&grid->blocks_, sizeof(BlockWords) * kResidentBlocks},
                               std::pair{&grid->staging_, sizeof(PlanEntry)}}) {
      Result<PinnedPage> made = PinnedPage::create(bytes);
      if (!made) return made.error();
      *page = std::move(*made);
    }
    ARC_RETURN_IF_ERROR(grid->clear());
    return std::unique_ptr<ResidentGrid>(std::move(grid));
  }

  explicit Grid(int ordinal) : ordinal_(ordinal) {}
  ~Grid() override {
    if (table_ == nullptr) return;
    // The GPU may be lost, or not have come to a launch that was taken back: giving back would wait
    // for that, and the launch will look here.
    if (pause(kLastPauseLimit) && kernel_.drain(kWriteLimit) && side_.drain(kWriteLimit)) {
      cudaFree(table_);
      return;
    }
    for (PinnedPage* page : {&words_, &blocks_, &staging_}) page->keep();
  }

  Status resume() override {
    if (running_) return {};
    // One at a time waits: launches that pile up would end by making the next one wait.
    const Result<bool> idle = kernel_.idle();
    if (!idle) return idle.error();
    if (!*idle) {
      return error(ErrorCode::Unavailable, Reason::None, "GPU ", ordinal_,
                   " has not come to the resident kernel's launch before: other work fills it");
    }
    const cudaError_t current = cudaSetDevice(ordinal_);
    const cudaError_t launched =
        current != cudaSuccess
            ? current
            : device::launch_resident(table_, static_cast<BlockWords*>(blocks_.device()), run_ + 1,
                                      static_cast<cudaStream_t>(kernel_.stream()));
    if (launched != cudaSuccess)
      return device::cuda_error(launched, "launching the resident kernel");
    ++run_;
    running_ = true;
    return {};
  }

  Status pause(std::chrono::nanoseconds timeout) override {
    if (!running_) return {};
    if (quit_ != run_) {
      ARC_RETURN_IF_ERROR(side_.store(&table_->quit, run_));
      quit_ = run_;
    }
    const auto until = std::chrono::steady_clock::now() + timeout;
    const bool all = started();
    ARC_RETURN_IF_ERROR(side_.drain(timeout));
    // From here on no block begins that has not said so.
    while (!has_left()) {
      if (std::chrono::steady_clock::now() < until) continue;
      ARC_RETURN_IF_ERROR(error_of(kernel_));
      return error(ErrorCode::DeadlineExceeded, Reason::Timeout, "the resident kernel of GPU ",
                   ordinal_, " has not left within ",
                   std::chrono::duration_cast<std::chrono::milliseconds>(timeout).count(), " ms");
    }
    running_ = false;
    // So that the next launch, and calls that wait for kernels, find nothing here. One that has not
    // started may be about to.
    static_cast<void>(kernel_.drain(all ? kEndLimit : kStartLimit));
    return error_of(kernel_);
  }

  bool running() const override { return running_; }
  bool is_idle() const override {
    const Result<bool> idle = kernel_.idle();
    return !idle || *idle;  // an error holds nothing up any more
  }
  bool started() const override {
    return running_ && std::all_of(blocks(), blocks() + kResidentBlocks,
                                   [this](const auto& block) { return load(block.begun) == run_; });
  }

  Result<std::uint32_t> add_member(const ResidentMember& member) override {
    std::uint32_t slot = 0;
    while (slot < kResidentMembers && taken_[slot]) ++slot;
    if (slot == kResidentMembers) {
      return error(ErrorCode::ResourceExhausted, Reason::Quota, "GPU ", ordinal_, " has ",
                   kResidentMembers, " communicators already: destroy one first");
    }
    words()[slot] = {.done = member.number, .failed = 0};
    const auto* host = static_cast<MemberWords*>(words_.device()) + slot;
    const MemberEntry entry{.member = member,
                            .host_done = const_cast<std::uint64_t*>(&host->done),
                            .host_failed = const_cast<std::uint64_t*>(&host->failed),
                            .owner = ++last_owner_};
    ARC_RETURN_IF_ERROR(write_member(slot, entry));
    members_[slot] = entry.owner;
    taken_[slot] = true;
    return slot;
  }

  Status remove_member(std::uint32_t slot) override {
    ARC_RETURN_IF_ERROR(write_member(slot, MemberEntry{}));
    taken_[slot] = false;
    return {};
  }

  Result<bool> has_begun(std::uint32_t slot, const ResidentPlan& plan) const override {
    const Result<Blocks> blocks = read_blocks(slot);
    if (!blocks) return blocks.error();
    return std::any_of(blocks->begin(), blocks->end(), [&plan](const Pending& pending) {
      return pending.progress == device::Progress::Pushed && pending.entry.plan.send == plan.send &&
             pending.entry.plan.recv == plan.recv;
    });
  }

  Status set_plan(std::uint32_t index, std::uint32_t slot, const ResidentPlan& plan) override {
    ARC_RETURN_IF_ERROR(can_be_resident(index, slot, plan));
    ARC_RETURN_IF_ERROR(clear_plan(index));
    PlanEntry entry{.plan = plan, .owner = 0};
    entry.plan.signature = resident_signature(plan);
    // A block that looks meanwhile finds no plan, or all of it.
    ARC_RETURN_IF_ERROR(write_plan(index, entry));
    ARC_RETURN_IF_ERROR(side_.store(&table_->plans[index].owner, members_[slot]));
    ARC_RETURN_IF_ERROR(side_.drain(kWriteLimit));
    owners_[index] = static_cast<std::uint8_t>(slot + 1);
    return {};
  }

  // Blocks keep a copy of the plan that they ran last; it is taken from them while they have left.
  Status clear_plan(std::uint32_t index) override {
    if (index >= kMaxDevicePlans || owners_[index] == 0) return {};
    const bool runs = running_;
    if (runs) ARC_RETURN_IF_ERROR(pause(kWriteLimit));
    const std::uint32_t slot = owners_[index] - 1U;
    // Word by word: clearing them at once takes a kernel, and others may fill the GPU.
    for (std::uint32_t block = 0; block < kResidentBlocks; ++block)
      ARC_RETURN_IF_ERROR(side_.store(&table_->pending[block][slot].plan, device::kNoPlan));
    ARC_RETURN_IF_ERROR(catch_up(slot));
    ARC_RETURN_IF_ERROR(write_plan(index, PlanEntry{}));
    owners_[index] = 0;
    return runs ? resume_if_possible() : Status{};
  }

  Status abort_member(std::uint32_t slot, Done why) override {
    static_assert(sizeof(unsigned long long) == sizeof(std::uint64_t));
    return side_.store(reinterpret_cast<std::uint64_t*>(&table_->ended[slot]), to_word(why));
  }

  ResidentStatus status(std::uint32_t slot) const override {
    const MemberWords& word = words()[slot];
    return {.done = static_cast<std::uint32_t>(load(word.done)),
            .failed = done_from(load(word.failed))};
  }

 private:
  using Blocks = std::array<Pending, kResidentBlocks>;

  MemberWords* words() const { return static_cast<MemberWords*>(words_.host()); }
  const BlockWords* blocks() const { return static_cast<const BlockWords*>(blocks_.host()); }

  // The table becomes zeros, by a copy engine: a kernel would wait for whoever fills the GPU.
  Status clear() {
    Result<PinnedPage> zeros = PinnedPage::create(sizeof(ResidentTable));
    if (!zeros) return zeros.error();
    ARC_RETURN_IF_ERROR(side_.copy(table_, zeros->host(), sizeof(ResidentTable)));
    Status cleared = side_.drain(kClearLimit);
    if (cleared) return {};
    zeros->keep();  // the copy may yet come, and the destructor keeps the rest
    if (cleared.error().code != ErrorCode::DeadlineExceeded) return cleared;
    return error(ErrorCode::Unavailable, Reason::Timeout, "GPU ", ordinal_,
                 " did not clear the resident kernel's table within ", kClearLimit.count(),
                 " ms: other work holds it up, or it hangs (nvidia-smi shows which); end that "
                 "work and start the daemon again");
  }

  // No block of the run is at work: what has not begun will not. After `quit` has been written.
  bool has_left() const {
    return std::all_of(blocks(), blocks() + kResidentBlocks, [this](const BlockWords& block) {
      return load(block.begun) != run_ || load(block.left) == run_;
    });
  }
  static Status error_of(const CudaQueue& queue) {
    const Result<bool> idle = queue.idle();
    return idle ? Status{} : idle.error();
  }
  // Else its owner does, later.
  Status resume_if_possible() {
    Status resumed = resume();
    return !resumed && resumed.error().code == ErrorCode::Unavailable ? Status{} : resumed;
  }

  // What the blocks have of a member. Called while they have left.
  Result<Blocks> read_blocks(std::uint32_t slot) const {
    Blocks blocks;
    cudaError_t read = cudaSetDevice(ordinal_);
    if (read == cudaSuccess) {
      read = cudaMemcpy2DAsync(blocks.data(), sizeof(Pending), &table_->pending[0][slot],
                               sizeof(Pending) * kResidentMembers, sizeof(Pending), kResidentBlocks,
                               cudaMemcpyDeviceToHost, static_cast<cudaStream_t>(side_.stream()));
    }
    if (read != cudaSuccess) return device::cuda_error(read, "reading a member's progress");
    ARC_RETURN_IF_ERROR(side_.drain(kWriteLimit));
    return blocks;
  }

  // A block that came late to operations which ended without it must not look at their doorbell
  // when the plan is another one. The first block takes part in every operation: what it has ended
  // is over.
  Status catch_up(std::uint32_t slot) {
    const Result<Blocks> blocks = read_blocks(slot);
    if (!blocks) return blocks.error();
    const Pending& first = blocks->front();
    const bool open = first.progress == device::Progress::Pushed;
    const std::uint32_t ended = open ? first.number - 1 : first.number;
    for (std::uint32_t block = 1; block < kResidentBlocks; ++block) {
      const std::uint32_t number = (*blocks)[block].number;
      if (number == first.number || number == ended) continue;
      ARC_RETURN_IF_ERROR(side_.store(&table_->pending[block][slot].number, ended));
    }
    return side_.drain(kWriteLimit);
  }

  // A grid that runs keeps its members in shared memory, so it is paused to take notice.
  Status write_member(std::uint32_t slot, const MemberEntry& entry) {
    const bool runs = running_;
    if (runs) ARC_RETURN_IF_ERROR(pause(kWriteLimit));
    cudaError_t written = cudaSetDevice(ordinal_);
    const auto write = [&](auto* to, const auto& value) {
      if (written == cudaSuccess)
        written = cudaMemcpyAsync(to, &value, sizeof(value), cudaMemcpyHostToDevice,
                                  static_cast<cudaStream_t>(side_.stream()));
    };
    Pending nothing{};
    nothing.number = entry.member.number;
    for (std::uint32_t block = 0; block < kResidentBlocks; ++block)
      write(&table_->pending[block][slot], nothing);
    write(&table_->ended[slot], 0ULL);
    write(&table_->blocks_done[slot], 0U);
    write(&table_->members[slot], entry);
    if (written != cudaSuccess) return device::cuda_error(written, "writing a member's entry");
    ARC_RETURN_IF_ERROR(side_.drain(kWriteLimit));
    return runs ? resume_if_possible() : Status{};
  }

  Status write_plan(std::uint32_t index, const PlanEntry& entry) {
    std::memcpy(staging_.host(), &entry, sizeof(entry));
    cudaError_t written = cudaSetDevice(ordinal_);
    if (written == cudaSuccess) {
      written = cudaMemcpyAsync(&table_->plans[index], staging_.host(), sizeof(entry),
                                cudaMemcpyHostToDevice, static_cast<cudaStream_t>(side_.stream()));
    }
    if (written != cudaSuccess) return device::cuda_error(written, "writing a plan's entry");
    return side_.drain(kWriteLimit);
  }

  const int ordinal_;
  ResidentTable* table_ = nullptr;
  CudaQueue kernel_, side_;  // side_: past the kernel, which may run for long
  PinnedPage words_, blocks_, staging_;
  std::array<bool, kResidentMembers> taken_{};
  std::array<std::uint64_t, kResidentMembers> members_{};  // their owner words
  std::uint64_t last_owner_ = 0;
  std::array<std::uint8_t, kMaxDevicePlans> owners_{};  // slot + 1, by plan
  std::uint32_t run_ = 0;                               // the last one that was launched
  std::uint32_t quit_ = 0;                              // as the table says it
  bool running_ = false;
};

}  // namespace

Result<std::unique_ptr<ResidentGrid>> ResidentGrid::create(int ordinal) {
  return Grid::open(ordinal);
}

}  // namespace arcomm
