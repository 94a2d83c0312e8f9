// Makes a context current for a piece of code and puts back the one that was; CudaScope also lets
// that code make calls that CUDA forbids while some stream is being captured, which ours never
// touch. Thread: the one that makes it.
#pragma once

#include "transport/device/cuda/cuda_driver.h"

namespace arcomm::client {

class CurrentContext {
 public:
  CurrentContext(const CudaDriver& api, CUcontext context) : api_(api) {
    CUcontext before = nullptr;
    api_.cuCtxGetCurrent_(&before);
    if (before == context) return;
    state_ = api_.cuCtxPushCurrent_(context);
    pushed_ = state_ == CUDA_SUCCESS;
  }
  ~CurrentContext() {
    CUcontext ours = nullptr;
    if (pushed_) api_.cuCtxPopCurrent_(&ours);
  }
  CurrentContext(const CurrentContext&) = delete;
  CurrentContext& operator=(const CurrentContext&) = delete;

  Status entered() const {
    if (state_ == CUDA_SUCCESS) return {};
    return api_.failed(state_, "making the communicator's CUDA context current");
  }

 private:
  const CudaDriver& api_;
  CUresult state_ = CUDA_SUCCESS;
  bool pushed_ = false;
};

class CaptureAllowed {
 public:
  explicit CaptureAllowed(const CudaDriver& api) : api_(api) {
    api_.cuThreadExchangeStreamCaptureMode_(&mode_);
  }
  ~CaptureAllowed() { api_.cuThreadExchangeStreamCaptureMode_(&mode_); }
  CaptureAllowed(const CaptureAllowed&) = delete;
  CaptureAllowed& operator=(const CaptureAllowed&) = delete;

 private:
  const CudaDriver& api_;
  CUstreamCaptureMode mode_ = CU_STREAM_CAPTURE_MODE_RELAXED;  // then the one that was
};

class CudaScope {
 public:
  CudaScope(const CudaDriver& api, CUcontext context) : current_(api, context), allowed_(api) {}
  Status entered() const { return current_.entered(); }

 private:
  CurrentContext current_;
  CaptureAllowed allowed_;
};

}  // namespace arcomm::client
