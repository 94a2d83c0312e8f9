// Between which of the worker's GPUs stores of 128 bytes arrive whole: tried once, at the start.
// Thread: the worker's.
#pragma once

#include <cstddef>
#include <vector>

#include "daemon/exec/gpu/deferred_release.h"
#include "daemon/exec/gpu/gpu_engine.h"

namespace arcomm {

class PeerLines {
 public:
  // Each pair alone, then all that passed into one GPU at a time. Half a second per trial and 10 s
  // for the pairs together at most; pairs that were not tried count as
  // those that failed. The log names them.
  PeerLines(const std::vector<GpuEngine>& engines, DeferredRelease& deferred);

  bool arrive_whole(const GpuEngine& writer, const GpuEngine& reader) const {
    return whole_[place(writer, reader)];
  }

 private:
  std::size_t place(const GpuEngine& writer, const GpuEngine& reader) const {
    return static_cast<std::size_t>(&writer - engines_.data()) * engines_.size() +
           static_cast<std::size_t>(&reader - engines_.data());
  }

  const std::vector<GpuEngine>& engines_;
  std::vector<bool> whole_;  // by writer and reader
};

}  // namespace arcomm
