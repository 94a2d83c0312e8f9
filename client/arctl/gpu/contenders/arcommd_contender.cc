#include "client/arctl/gpu/contenders/arcommd_contender.h"

#include <utility>

namespace arcomm::arctl {
namespace {

class ArcommdContender final : public GpuContender {
 public:
  explicit ArcommdContender(GpuDevice& device) : device_(device) {}
  // The process ends next: what cannot be given back goes with it.
  ~ArcommdContender() override {
    if (comm_ != nullptr) arcCommDestroy(comm_);  // where nobody came to leave()
    for (std::byte* place : shared_) {
      if (place != nullptr) arcMemFree(place);
    }
  }
  ArcommdContender(const ArcommdContender&) = delete;
  ArcommdContender& operator=(const ArcommdContender&) = delete;

  Status open(const RankBoard& board, Rank rank) {
    const BoardPage& page = board.page();
    ARC_RETURN_IF_ERROR(status_of(arcCommInitRank(&comm_, page.ranks, page.unique_id, rank)));
    board.beat(rank);
    std::byte** const places[] = {&buffers_.send, &buffers_.recv};
    for (std::size_t i = 0; i < std::size(places); ++i) {
      if (page.memory == RankMemory::Shared) {
        void* place = nullptr;
        ARC_RETURN_IF_ERROR(status_of(arcMemAlloc(&place, page.buffer_bytes + kSlackBytes)));
        *places[i] = shared_[i] = static_cast<std::byte*>(place);
      } else {
        Result<std::byte*> place = device_.allocate(page.buffer_bytes + kSlackBytes);
        if (!place) return std::move(place).error();
        *places[i] = *place;
      }
    }
    Result<std::byte*> met = device_.allocate(sizeof(float));
    if (!met) return std::move(met).error();
    met_ = *met;
    return device_.fill(met_, 0, sizeof(float));
  }

  GpuBuffers buffers() const override { return buffers_; }
  Status all_reduce(const std::byte* send, std::byte* recv, std::uint64_t count, DType dtype,
                    ReduceOp op, Codec codec) override {
    const auto type = static_cast<arcDataType_t>(dtype);
    const auto how = static_cast<arcRedOp_t>(op);
    // Without one it is what applications call.
    if (codec == Codec::None)
      return status_of(arcAllReduce(send, recv, count, type, how, comm_, device_.stream()));
    arcAllReduceConfig_t config = ARC_ALL_REDUCE_CONFIG_INITIALIZER;
    config.codec = static_cast<arcCodec_t>(codec);
    return status_of(
        arcAllReduceWith(send, recv, count, type, how, &config, comm_, device_.stream()));
  }
  Status meet() override {
    return all_reduce(met_, met_, 1, DType::Float32, ReduceOp::Max, Codec::None);
  }
  Status outcome() override {
    arcResult_t state = arcSuccess;
    ARC_RETURN_IF_ERROR(status_of(arcCommGetAsyncError(comm_, &state)));
    return status_of(state);
  }
  Status leave() override { return status_of(arcCommDestroy(std::exchange(comm_, nullptr))); }

 private:
  GpuDevice& device_;
  arcComm_t comm_ = nullptr;
  GpuBuffers buffers_;
  std::byte* shared_[2] = {};
  std::byte* met_ = nullptr;
};

}  // namespace

Result<std::unique_ptr<GpuContender>> open_arcommd(const RankBoard& board, Rank rank,
                                                   GpuDevice& device) {
  auto contender = std::make_unique<ArcommdContender>(device);
  ARC_RETURN_IF_ERROR(contender->open(board, rank));
  return std::unique_ptr<GpuContender>(std::move(contender));
}

}  // namespace arcomm::arctl
