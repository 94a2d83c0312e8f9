#include "tests/gpu/service/client/client_comm.h"

#include <algorithm>
#include <chrono>
#include <string>

#include "tests/gpu/service/client/client_options.h"

namespace arcomm::gpu {
namespace {

using Clock = std::chrono::steady_clock;
constexpr std::chrono::milliseconds kCommPatience{40'000};

}  // namespace

ClientComm::ClientComm(arcUniqueId id) {
  arc(arcCommInitRank(&comm_, options.ranks, id, options.rank), "arcCommInitRank");
  const std::uint64_t most =
      *std::max_element(options.sizes.begin(), options.sizes.end()) + kSlackBytes;
  send_ = memory(most);
  recv_ = memory(most);
  // Of the same kind: in a PID namespace of its own a process can share no other than arc memory.
  agreed_ = reinterpret_cast<float*>(memory(sizeof(float)));
  for (cudaStream_t* stream : {&stream_, &other_}) {
    cuda(cudaStreamCreateWithFlags(stream, cudaStreamNonBlocking), "cudaStreamCreate");
  }
}

std::byte* ClientComm::memory(std::uint64_t bytes) {
  void* place = nullptr;
  if (options.is_arc_memory) {
    arc(arcMemAlloc(&place, bytes), "arcMemAlloc");
  } else {
    cuda(cudaMalloc(&place, bytes), "cudaMalloc");
  }
  return static_cast<std::byte*>(place);
}

void ClientComm::all_reduce(const void* send, void* recv, std::uint64_t count,
                            cudaStream_t stream) {
  const auto dtype = static_cast<arcDataType_t>(options.dtype);
  if (options.codec == Codec::None)
    return arc(arcAllReduce(send, recv, count, dtype, arcSum, comm_, stream), "arcAllReduce");
  arcAllReduceConfig_t config = ARC_ALL_REDUCE_CONFIG_INITIALIZER;
  config.codec = static_cast<arcCodec_t>(options.codec);
  arc(arcAllReduceWith(send, recv, count, dtype, arcSum, &config, comm_, stream),
      "arcAllReduceWith");
}

cudaGraphExec_t ClientComm::captured(const std::function<void()>& work) {
  cuda(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeGlobal), "cudaStreamBeginCapture");
  work();
  cudaGraph_t graph = nullptr;
  cuda(cudaStreamEndCapture(stream_, &graph), "cudaStreamEndCapture");
  cudaGraphExec_t runnable = nullptr;
  cuda(cudaGraphInstantiate(&runnable, graph, 0), "cudaGraphInstantiate");
  cuda(cudaGraphDestroy(graph), "cudaGraphDestroy");
  return runnable;
}

void ClientComm::synchronize(const char* what) {
  const Clock::time_point deadline = Clock::now() + kCommPatience;
  for (cudaStream_t stream : {stream_, other_}) {
    cudaError_t state = cudaErrorNotReady;
    while ((state = cudaStreamQuery(stream)) == cudaErrorNotReady) {
      if (Clock::now() >= deadline) die(std::string("a stream hangs in ") + what);
    }
    cuda(state, what);
  }
}

void ClientComm::settle(const char* what) {
  synchronize(what);
  arcResult_t state = arcSuccess;
  arc(arcCommGetAsyncError(comm_, &state), "arcCommGetAsyncError");
  arc(state, what);
}

double ClientComm::greatest(double mine) {
  const auto value = static_cast<float>(mine);
  cuda(cudaMemcpyAsync(agreed_, &value, sizeof(value), cudaMemcpyDefault, stream_), "uploading");
  meet();
  float all = 0;
  cuda(cudaMemcpyAsync(&all, agreed_, sizeof(all), cudaMemcpyDefault, stream_), "downloading");
  settle("agreeing on a value");
  return static_cast<double>(all);
}

void ClientComm::meet() {
  arc(arcAllReduce(agreed_, agreed_, 1, arcFloat32, arcMax, comm_, stream_), "arcAllReduce");
}

void ClientComm::leave() {
  meet();
  synchronize("the last operation");
  arc(arcCommDestroy(comm_), "arcCommDestroy");
  if (options.is_arc_memory) {
    arc(arcMemFree(send_), "arcMemFree");
    arc(arcMemFree(recv_), "arcMemFree");
    arc(arcMemFree(agreed_), "arcMemFree");
  }
}

}  // namespace arcomm::gpu
