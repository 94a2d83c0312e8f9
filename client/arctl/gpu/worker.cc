#include "client/arctl/gpu/worker.h"

#include <unistd.h>

#include <array>
#include <chrono>
#include <cstdlib>
#include <memory>
#include <optional>
#include <utility>

#include "client/arctl/gpu/contenders/arcommd_contender.h"
#include "client/arctl/gpu/contenders/nccl_contender.h"
#include "client/arctl/gpu/device.h"
#include "client/arctl/gpu/timed_run.h"

namespace arcomm::arctl {
namespace {

constexpr std::uint32_t kCopiesAtOnce = 8;

class GpuWorker {
 public:
  GpuWorker(const RankBoard& board, Rank rank, std::string runtime_dir)
      : board_(board), rank_(rank), runtime_dir_(std::move(runtime_dir)) {}
  ~GpuWorker() {
    contenders_ = {};
    if (attached_) arcFinalize();
  }
  GpuWorker(const GpuWorker&) = delete;
  GpuWorker& operator=(const GpuWorker&) = delete;

  Status serve() {
    ARC_RETURN_IF_ERROR(board_.serve(rank_, [this](const BenchCase& what) { return run(what); }));
    for (const std::unique_ptr<GpuContender>& contender : contenders_) {
      if (contender) ARC_RETURN_IF_ERROR(contender->leave());
    }
    return {};
  }
  bool has_loaded_nccl() const { return nccl_.has_value(); }

 private:
  Status run(const BenchCase& what) {
    if (what.kind != CaseKind::Survey) ARC_RETURN_IF_ERROR(take_gpu());
    switch (what.kind) {
      case CaseKind::Survey:
        return survey();
      case CaseKind::Open:
        return open(what.contender);
      case CaseKind::PeerCopy:
        return copy_to_neighbour(what);
      case CaseKind::Accuracy:
        return error(ErrorCode::Internal, Reason::Bug, "accuracy is measured on the host");
      case CaseKind::AllReduce:
        break;
    }
    GpuContender* const contender = contenders_[static_cast<std::size_t>(what.contender)].get();
    if (contender == nullptr) {
      return error(ErrorCode::Internal, Reason::Bug, text_of(what.contender), " was not opened");
    }
    if (!timed_) {
      Result<TimedRun> timed = TimedRun::create(board_, rank_, *device_);
      if (!timed) return std::move(timed).error();
      timed_.emplace(std::move(*timed));
    }
    return timed_->run(what, *contender);
  }

  Status survey() {
    const Result<GpusSeen> seen = see_gpus();
    if (!seen) return seen.error();
    slot().seen = *seen;
    return {};
  }

  Status take_gpu() {
    if (device_ != nullptr) return {};
    Result<std::unique_ptr<GpuDevice>> device = open_gpu(board_.page().gpus[rank_]);
    if (!device) return std::move(device).error();
    device_ = std::move(*device);
    return {};
  }

  Status open(Contender which) {
    std::unique_ptr<GpuContender>& contender = contenders_[static_cast<std::size_t>(which)];
    if (which == Contender::Arcommd) {
      arcConfig_t config = ARC_CONFIG_INITIALIZER;
      config.runtime_dir = runtime_dir_.empty() ? nullptr : runtime_dir_.c_str();
      config.timeout_ms = board_.page().timeout_ms;
      config.device = "gpu";
      if (Status attached = status_of(arcInit(&config)); !attached.ok()) {
        Error failure = std::move(attached).error();
        if (failure.code == ErrorCode::NotFound) {
          failure.message = "the daemon serves no GPUs, which --device gpu needs (" +
                            failure.message + "): see `arctl status`";
        }
        return failure;
      }
      attached_ = true;
      Result<std::unique_ptr<GpuContender>> opened = open_arcommd(board_, rank_, *device_);
      if (!opened) return std::move(opened).error();
      contender = std::move(*opened);
      board_.note(rank_, device_->name() + ", CUDA " +
                             std::to_string(device_->driver_version() / 1000) + "." +
                             std::to_string(device_->driver_version() % 1000 / 10));
      return {};
    }
    if (!nccl_) {
      Result<NcclLibrary> loaded = NcclLibrary::load(board_.page().nccl);
      if (!loaded) return std::move(loaded).error();
      nccl_ = *loaded;
    }
    Result<std::unique_ptr<GpuContender>> opened =
        open_nccl(*nccl_, which == Contender::NcclSymmetric, board_, rank_, *device_);
    if (!opened) {  // a peer less: no reason to have no benchmark
      slot().refused = 1;
      board_.note(rank_, opened.error().message);
      return {};
    }
    contender = std::move(*opened);
    board_.note(rank_, nccl_->version());
    return {};
  }

  // All ranks at once, each to the next: as a sum has them do.
  Status copy_to_neighbour(const BenchCase& what) {
    const BoardPage& page = board_.page();
    Result<std::unique_ptr<GpuPeerCopy>> copy =
        device_->peer_copy(page.gpus[(rank_ + 1) % page.ranks], kPeerCopyBytes);
    if (!copy) {  // no speed of light: no reason to have no benchmark
      slot().refused = 1;
      board_.note(rank_, copy.error().message);
    }
    for (std::uint32_t round = 0; round < what.rounds; ++round) {
      ARC_RETURN_IF_ERROR(board_.meet(deadline()));
      if (!copy) continue;
      ARC_RETURN_IF_ERROR((*copy)->enqueue());
      ARC_RETURN_IF_ERROR(device_->record(GpuDevice::Mark::Begin));
      for (std::uint32_t i = 0; i < kCopiesAtOnce; ++i) ARC_RETURN_IF_ERROR((*copy)->enqueue());
      ARC_RETURN_IF_ERROR(device_->record(GpuDevice::Mark::End));
      ARC_RETURN_IF_ERROR(device_->wait(deadline()));
      const Result<double> us = device_->between_us();
      if (!us) return us.error();
      board_.sample(rank_, *us / kCopiesAtOnce);
      board_.beat(rank_);
    }
    // No rank takes its memory away while another still copies.
    return board_.meet(deadline());
  }

  RankSlot& slot() const { return board_.page().slots[rank_]; }
  GpuDevice::Clock::time_point deadline() const {
    return GpuDevice::Clock::now() + std::chrono::milliseconds(board_.page().timeout_ms);
  }

  const RankBoard& board_;
  const Rank rank_;
  const std::string runtime_dir_;
  std::unique_ptr<GpuDevice> device_;
  bool attached_ = false;
  std::optional<NcclLibrary> nccl_;
  std::array<std::unique_ptr<GpuContender>, kContenders> contenders_;
  std::optional<TimedRun> timed_;
};

}  // namespace

ExitCode run_gpu_rank(const RankBoard& board, Rank rank, const std::string& runtime_dir) {
  // Before CUDA and NCCL look: all code on the GPU at once, and none by NVLink multicast.
  ::setenv("CUDA_MODULE_LOADING", "EAGER", 0);
  ::setenv(kNvlsVariable, nccl_nvls().c_str(), 1);
  bool nccl = false;
  const Status served = [&] {
    GpuWorker worker(board, rank, runtime_dir);
    Status status = worker.serve();
    nccl = worker.has_loaded_nccl();
    if (!status.ok()) {
      board.fail(rank, status.error());
      // The parent kills what is left; what waits for a GPU that hangs must not hide the error.
      ::_exit(static_cast<int>(exit_code_for(status.error())));
    }
    return status;
  }();
  // NCCL's threads and communicators are left as they are: taking them down needs all ranks.
  if (nccl) ::_exit(static_cast<int>(ExitCode::Ok));
  return served.ok() ? ExitCode::Ok : exit_code_for(served.error());
}

}  // namespace arcomm::arctl
