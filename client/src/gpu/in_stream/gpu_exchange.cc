#include "client/src/gpu/in_stream/gpu_exchange.h"

#include <utility>

namespace arcomm::client {

Result<std::unique_ptr<GpuExchange>> GpuExchange::open(Gpu& gpu,
                                                       std::span<const UniqueFd> descriptors,
                                                       std::uint64_t bytes,
                                                       std::uint64_t max_timeout_ms) {
  const std::size_t ranks = descriptors.size() - 1;
  if (ranks > kMaxGpuRanks || bytes < in_stream_exchange_bytes(static_cast<std::uint32_t>(ranks))) {
    return error(ErrorCode::Internal, Reason::Version, "the daemon's exchanges have ", bytes,
                 " bytes for each of ", ranks,
                 " ranks, too few: are client and daemon of one version?");
  }
  std::unique_ptr<GpuExchange> exchange(new GpuExchange);
  exchange->max_timeout_ns_ = max_timeout_ms * 1'000'000;
  const Result<const InStreamKernels*> kernels = gpu.load_in_stream(descriptors[0].get());
  if (!kernels) return kernels.error();
  exchange->kernels_ = *kernels;
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    Result<std::unique_ptr<GpuMapping>> mapped =
        gpu.import_memory(descriptors[rank + 1].get(), bytes);
    if (!mapped) {
      Error why = std::move(mapped).error();
      why.message += ": the memory of rank " + std::to_string(rank) +
                     "'s GPU; turn gpu.in_stream off in the daemon's configuration to do without";
      return why;
    }
    exchange->call_.exchange[rank] = static_cast<InStreamControl*>((*mapped)->address());
    exchange->memory_.push_back(std::move(*mapped));
  }
  return exchange;
}

}  // namespace arcomm::client
