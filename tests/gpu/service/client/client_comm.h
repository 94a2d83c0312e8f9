// One rank's communicator with its daemon, the memory and the two streams that it works with, and
// waiting that ends. Of the process's options; what fails ends the process (die).
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <functional>

#include "client/include/arclient.h"

namespace arcomm::gpu {

inline constexpr std::uint64_t kSlackBytes = 4096;  // behind the largest size, in send and recv

class ClientComm {
 public:
  explicit ClientComm(arcUniqueId id);
  ClientComm(const ClientComm&) = delete;
  ClientComm& operator=(const ClientComm&) = delete;

  arcComm_t handle() const { return comm_; }
  cudaStream_t stream() const { return stream_; }
  cudaStream_t other() const { return other_; }  // knows nothing of stream()
  // Of the options' kind of memory, for their largest size.
  std::byte* send() const { return send_; }
  std::byte* recv() const { return recv_; }

  // The sum, of the options' type.
  void all_reduce(const void* send, void* recv, std::uint64_t count, cudaStream_t stream);
  // Captured from stream() in the strictest mode: nothing unsafe may be called by any thread.
  cudaGraphExec_t captured(const std::function<void()>& work);

  // Waits for both streams, for a limited time.
  void synchronize(const char* what);
  // And asks whether all went well.
  void settle(const char* what);

  // The greatest of what the ranks say, when all have said it.
  double greatest(double mine);
  // On stream(), and on the GPU alone: what is behind it begins when all ranks have come so far.
  void meet();

  // When all ranks have come here any of them may be gone first.
  void leave();

 private:
  std::byte* memory(std::uint64_t bytes);

  arcComm_t comm_ = nullptr;
  std::byte *send_ = nullptr, *recv_ = nullptr;
  float* agreed_ = nullptr;
  cudaStream_t stream_ = nullptr, other_ = nullptr;
};

}  // namespace arcomm::gpu
