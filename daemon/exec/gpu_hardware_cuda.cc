// The build with CUDA: kernels and queues of one GPU.
#include <utility>

#include "daemon/exec/gpu_hardware.h"
#include "kernels/cuda_queue.h"
#include "kernels/pinned_page.h"
#include "transport/device/device.h"

namespace arcomm {
namespace {

constexpr std::uint64_t kRankWords = 1024;

class CudaLauncher final : public GpuLauncher {
 public:
  CudaLauncher(CudaQueue work, CudaQueue beside, PinnedPage page)
      : page_(std::move(page)), work_(std::move(work)), beside_(std::move(beside)) {}

  Status launch(CudaAlgorithm algorithm, const CudaAllReduce& call) override {
    CudaAllReduce here = call;
    here.ordinal = work_.ordinal();
    return launch_all_reduce(algorithm, here, CudaShape{}, work_.stream());
  }
  Status store(std::uint64_t* address, std::uint64_t value) override {
    return beside_.store(address, value);
  }
  Status abort(void* scratch) override {
    ARC_RETURN_IF_ERROR(beside_.make_current());
    return abort_all_reduce(scratch, beside_.stream());
  }
  Status flush(std::chrono::nanoseconds timeout) override { return beside_.drain(timeout); }
  Status health() override {
    if (Result<bool> idle = work_.idle(); !idle) return std::move(idle).error();
    return {};
  }
  std::span<RankWords> words() override {
    return {static_cast<RankWords*>(page_.host()), kRankWords};
  }

 private:
  PinnedPage page_;  // first: kernels in the queues write there
  CudaQueue work_, beside_;
};

}  // namespace

Result<GpuHardware> open_gpu(Device& device) {
  const int ordinal = device.ordinal();
  Result<CudaQueue> work = CudaQueue::create(ordinal);  // makes the GPU current
  if (!work) return std::move(work).error();
  Result<CudaQueue> beside = CudaQueue::create(ordinal);
  if (!beside) return std::move(beside).error();
  Result<PinnedPage> page = PinnedPage::create(kRankWords * sizeof(RankWords));
  if (!page) return std::move(page).error();
  ARC_RETURN_IF_ERROR(load_all_reduce_kernels());
  Result<std::unique_ptr<ResidentGrid>> grid = ResidentGrid::create(ordinal);
  if (!grid) return std::move(grid).error();
  return GpuHardware{
      std::move(grid).value(),
      std::make_unique<CudaLauncher>(std::move(work).value(), std::move(beside).value(),
                                     std::move(page).value()),
      resident_scratch_bytes()};
}

}  // namespace arcomm
