#include "client/arctl/gpu/contenders/nccl_contender.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <utility>

namespace arcomm::arctl {
namespace {

constexpr std::uint64_t kWindowGranule = 2 << 20;  // what GPU memory is mapped in

// After each step, which went well or not: a rank that goes on without another one waits for it in
// NCCL, and for ever. An error says why the first did not get here, on all of them.
Status all_did(const RankBoard& board, Rank rank, Status mine) {
  BoardPage& page = board.page();
  RankSlot& slot = page.slots[rank];
  if (!mine.ok()) board.note(rank, mine.error().message);
  if (mine.ok()) slot.steps.fetch_add(1, std::memory_order_release);
  const std::uint32_t steps = slot.steps.load(std::memory_order_relaxed);
  const Status met =
      board.meet(std::chrono::steady_clock::now() +
                 std::max(std::chrono::milliseconds(2 * page.timeout_ms), kOpensWithin));
  ARC_RETURN_IF_ERROR(std::move(mine));
  ARC_RETURN_IF_ERROR(met);
  for (Rank other = 0; other < page.ranks; ++other) {
    const RankSlot& theirs = page.slots[other];
    // More: it is at the next step already.
    if (theirs.steps.load(std::memory_order_acquire) < steps)
      return error(ErrorCode::Aborted, Reason::RemoteAborted, "rank ", other, ": ", theirs.note);
  }
  return {};
}

class NcclContender final : public GpuContender {
 public:
  NcclContender(const NcclLibrary& nccl, GpuDevice& device) : nccl_(nccl), device_(device) {}

  Status join(Contender which, const RankBoard& board, Rank rank) {
    BoardPage& page = board.page();
    char* const shared = page.nccl_ids[static_cast<std::size_t>(which)];
    static_assert(sizeof(NcclId) == kNcclIdBytes);
    NcclId id{};
    Status drawn;
    if (rank == 0) {
      drawn = nccl_.checked(nccl_.get_unique_id(&id), "ncclGetUniqueId", nullptr);
      std::memcpy(shared, &id, sizeof(id));
    }
    ARC_RETURN_IF_ERROR(all_did(board, rank, std::move(drawn)));
    std::memcpy(&id, shared, sizeof(id));
    ARC_RETURN_IF_ERROR(nccl_.checked(nccl_.comm_init_rank(&comm_, page.ranks, id, rank),
                                      "ncclCommInitRank", nullptr));
    board.beat(rank);
    Result<std::byte*> met = device_.allocate(sizeof(float));
    if (!met) return std::move(met).error();
    met_ = *met;
    return device_.fill(met_, 0, sizeof(float));
  }

  Status allocate(std::uint64_t bytes) {
    for (std::byte** place : {&buffers_.send, &buffers_.recv}) {
      Result<std::byte*> memory = device_.allocate(bytes);
      if (!memory) return std::move(memory).error();
      *place = *memory;
    }
    return {};
  }

  Status allocate_for_windows(std::uint64_t least) {
    window_bytes_ = (least + kWindowGranule - 1) / kWindowGranule * kWindowGranule;
    for (std::byte** place : {&buffers_.send, &buffers_.recv}) {
      void* memory = nullptr;
      ARC_RETURN_IF_ERROR(
          nccl_.checked(nccl_.mem_alloc(&memory, window_bytes_), "ncclMemAlloc", comm_));
      *place = static_cast<std::byte*>(memory);
    }
    return {};
  }

  // Of all ranks at once: registering waits for the others.
  Status register_windows() {
    for (std::byte* place : {buffers_.send, buffers_.recv}) {
      void* window = nullptr;
      ARC_RETURN_IF_ERROR(nccl_.checked(
          nccl_.comm_window_register(comm_, place, window_bytes_, &window, kNcclWindowSymmetric),
          "ncclCommWindowRegister", comm_));
      // Success without a window is how NCCL says that the machine cannot do it.
      if (window == nullptr) {
        return error(ErrorCode::Unimplemented, Reason::Unsupported, "NCCL ", nccl_.version(),
                     " gave no symmetric window here");
      }
    }
    return {};
  }

  GpuBuffers buffers() const override { return buffers_; }
  Status all_reduce(const std::byte* send, std::byte* recv, std::uint64_t count, DType dtype,
                    ReduceOp op, Codec) override {
    return nccl_.checked(nccl_.all_reduce(send, recv, count, nccl_number_of(dtype),
                                          nccl_number_of(op), comm_, device_.stream()),
                         "ncclAllReduce", comm_);
  }
  Status meet() override {
    return all_reduce(met_, met_, 1, DType::Float32, ReduceOp::Max, Codec::None);
  }
  Status outcome() override {
    int state = 0;
    ARC_RETURN_IF_ERROR(
        nccl_.checked(nccl_.comm_get_async_error(comm_, &state), "ncclCommGetAsyncError", comm_));
    return nccl_.checked(state, "NCCL's communicator failed", comm_);
  }

 private:
  const NcclLibrary& nccl_;
  GpuDevice& device_;
  void* comm_ = nullptr;
  GpuBuffers buffers_;
  std::uint64_t window_bytes_ = 0;
  std::byte* met_ = nullptr;
};

}  // namespace

Result<std::unique_ptr<GpuContender>> open_nccl(const NcclLibrary& nccl, bool symmetric,
                                                const RankBoard& board, Rank rank,
                                                GpuDevice& device) {
  if (symmetric && (nccl.mem_alloc == nullptr || nccl.comm_window_register == nullptr)) {
    return error(ErrorCode::Unimplemented, Reason::Unsupported, "NCCL ", nccl.version(),
                 " knows no symmetric windows (2.27 and later do)");
  }
  auto contender = std::make_unique<NcclContender>(nccl, device);
  const std::uint64_t bytes = board.page().buffer_bytes + kSlackBytes;
  Status opened =
      contender->join(symmetric ? Contender::NcclSymmetric : Contender::Nccl, board, rank);
  if (opened.ok())
    opened = symmetric ? contender->allocate_for_windows(bytes) : contender->allocate(bytes);
  opened = all_did(board, rank, std::move(opened));
  if (opened.ok() && symmetric) opened = contender->register_windows();
  if (opened.ok()) return std::unique_ptr<GpuContender>(std::move(contender));
  // NCCL may use what it has of this communicator: it stays until the process ends.
  static_cast<void>(contender.release());
  return std::move(opened).error();
}

}  // namespace arcomm::arctl
