// A GPU by CUDA's driver: see device.h.
#pragma once

#include <string>

#include "client/arctl/gpu/device.h"
#include "transport/device/cuda/cuda_driver.h"

namespace arcomm::arctl {

class CudaGraph final : public GpuGraph {
 public:
  CudaGraph(const CudaDriver& cuda, CUgraphExec graph, CUstream stream)
      : cuda_(cuda), graph_(graph), stream_(stream) {}
  ~CudaGraph() override;
  CudaGraph(const CudaGraph&) = delete;
  CudaGraph& operator=(const CudaGraph&) = delete;
  Status launch() override;

 private:
  const CudaDriver& cuda_;
  CUgraphExec graph_;
  CUstream stream_;
};

// Holds the other GPU's primary context as long as it lives.
class CudaPeerCopy final : public GpuPeerCopy {
 public:
  CudaPeerCopy(const CudaDriver& cuda, CUcontext here, CUstream stream)
      : cuda_(cuda), here_(here), stream_(stream) {}
  ~CudaPeerCopy() override;
  CudaPeerCopy(const CudaPeerCopy&) = delete;
  CudaPeerCopy& operator=(const CudaPeerCopy&) = delete;

  Status open(CUdevice from, CUdevice to, std::uint64_t bytes);
  Status enqueue() override;

 private:
  const CudaDriver& cuda_;
  CUcontext here_, there_ = nullptr;
  CUstream stream_;
  CUdevice to_ = 0;
  CUdeviceptr source_ = 0, target_ = 0;
  std::uint64_t bytes_ = 0;
  bool enabled_ = false;
};

// The primary context is kept until the process ends: libraries that came to use it may stay.
class CudaDevice final : public GpuDevice {
 public:
  static Result<std::unique_ptr<CudaDevice>> open(const CudaDriver& cuda, int ordinal);

  std::string name() const override { return name_; }
  int driver_version() const override { return driver_version_; }
  void* stream() const override { return stream_; }
  Result<std::byte*> allocate(std::uint64_t bytes) override;
  Result<std::byte*> allocate_pinned(std::uint64_t bytes) override;
  Status fill(std::byte* to, unsigned char value, std::uint64_t bytes) override;
  Status upload(std::byte* to, const std::byte* from, std::uint64_t bytes) override;
  Status copy(std::byte* to, const std::byte* from, std::uint64_t bytes) override;
  Status download(std::byte* to, const std::byte* from, std::uint64_t bytes) override;
  Status record(Mark mark) override;
  Result<double> between_us() override;
  Result<std::unique_ptr<GpuGraph>> capture(const std::function<Status()>& work) override;
  Status wait(Clock::time_point deadline) override;
  Result<std::unique_ptr<GpuPeerCopy>> peer_copy(int other, std::uint64_t bytes) override;

 private:
  explicit CudaDevice(const CudaDriver& cuda) : cuda_(cuda) {}
  Status set_up(int ordinal);

  const CudaDriver& cuda_;
  std::string name_;
  int driver_version_ = 0;
  CUdevice device_ = 0;
  CUcontext context_ = nullptr;
  CUstream stream_ = nullptr;
  CUevent begin_ = nullptr, end_ = nullptr;
};

}  // namespace arcomm::arctl
