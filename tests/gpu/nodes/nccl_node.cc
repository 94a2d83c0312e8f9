#include "tests/gpu/nodes/nccl_node.h"

#include <algorithm>
#include <chrono>
#include <span>

#include "tests/gpu/service/client/client_comm.h"
#include "tests/gpu/service/client/client_id.h"
#include "tests/gpu/service/client/client_options.h"

namespace arcomm::gpu {
namespace {

using Clock = std::chrono::steady_clock;
constexpr std::chrono::seconds kPatience{40};

std::byte* memory(std::uint64_t bytes) {
  void* place = nullptr;
  cuda(cudaMalloc(&place, bytes), "cudaMalloc");
  return static_cast<std::byte*>(place);
}

}  // namespace

NcclNode::NcclNode(const std::string& path) {
  const Result<arctl::NcclLibrary> library = arctl::NcclLibrary::load(path);
  if (!library) die(library.error().message);
  nccl_ = *library;
  arctl::NcclId id{};
  exchange_bytes(options.id_file, std::as_writable_bytes(std::span(id.internal)),
                 [this, &id] { check(nccl_.get_unique_id(&id), "ncclGetUniqueId"); });
  check(nccl_.comm_init_rank(&comm_, options.ranks, id, options.rank), "ncclCommInitRank");
  cuda(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "cudaStreamCreate");
  const std::uint64_t most =
      *std::max_element(options.sizes.begin(), options.sizes.end()) + kSlackBytes;
  send_ = memory(most);
  recv_ = memory(most);
}

Summing NcclNode::summing() {
  return {.library = "NCCL " + nccl_.version(),
          .send = send_,
          .recv = recv_,
          .stream = stream_,
          .all_reduce =
              [this](const void* send, void* recv, std::uint64_t count) {
                check(nccl_.all_reduce(send, recv, count, arctl::nccl_number_of(options.dtype),
                                       arctl::nccl_number_of(ReduceOp::Sum), comm_, stream_),
                      "ncclAllReduce");
              },
          .settle = [this](const char* what) { settle(what); }};
}

void NcclNode::check(int result, const char* what) const {
  const Status status = nccl_.checked(result, what, comm_);
  if (!status) die(status.error().message);
}

void NcclNode::settle(const char* what) const {
  const Clock::time_point deadline = Clock::now() + kPatience;
  cudaError_t state = cudaErrorNotReady;
  while ((state = cudaStreamQuery(stream_)) == cudaErrorNotReady) {
    int failed = 0;
    check(nccl_.comm_get_async_error(comm_, &failed), "ncclCommGetAsyncError");
    check(failed, what);
    if (Clock::now() >= deadline) die(std::string("NCCL's stream hangs in ") + what);
  }
  cuda(state, what);
}

}  // namespace arcomm::gpu
