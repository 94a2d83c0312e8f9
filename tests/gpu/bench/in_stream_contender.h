// In-stream operations of all ranks of a GpuNode from this process, with a codec or with none: the
// kernels that clients launch by themselves, on exchanges of their own and as the launch table of
// the first communicator has them. One thread.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "kernels/in_stream/kernels.h"
#include "proto/gpu/launch_table.h"
#include "tests/gpu/kernels/node/gpu_node.h"

namespace arcomm::gpu {

class InStreamContender {
 public:
  // Loads the kernels of all codecs. blocks: that an operation may have. The node must outlive it.
  static Result<InStreamContender> open(GpuNode& node, std::uint32_t blocks);

  // Whether float16 sums of so many bytes are in-stream with that codec.
  bool takes(std::uint64_t bytes, Codec codec) const { return shape_of(bytes, codec).blocks != 0; }
  // One on every rank's stream, from its send into its recv. False: it could not, or an earlier
  // one has failed.
  bool enqueue(std::uint64_t bytes, Codec codec);
  bool has_failed() const;  // looks once all streams are idle

 private:
  struct Rank {
    std::unique_ptr<InStreamKernels> kernels;
    InStreamControl* exchange = nullptr;  // for the life of the process, as what follows
    DeviceMailbox* mailbox = nullptr;
    HostDoorbells* doorbells = nullptr;
  };

  explicit InStreamContender(GpuNode& node) : node_(&node) {}
  InStreamShape shape_of(std::uint64_t bytes, Codec codec) const;

  GpuNode* node_;
  LaunchTable launches_;
  std::vector<Rank> ranks_;
};

}  // namespace arcomm::gpu
