// What `arctl bench` calls of NCCL, by NCCL's own C ABI and without a GPU. Results are wrong where
// ARCOMM_FAKE_WRONG is "nccl"; ARCOMM_FAKE_NCCL_FAILS names the call that fails, ncclMemAlloc on
// rank 1 only; there are no windows where ARCOMM_FAKE_NO_WINDOWS is set, nor where NVLink multicast
// has not been turned off.
#include <string_view>

#include "tests/integration/fake_gpus/ranks.h"

namespace {

using arcomm::fake::Ranks;

constexpr int kFloat32 = 7, kProd = 1, kMax = 2, kInvalidArgument = 4, kSymmetric = 1;

struct UniqueId {
  char internal[arcomm::fake::kIdBytes];
};

std::string_view environment(const char* name) {
  const char* value = std::getenv(name);
  return value != nullptr ? value : "";
}

bool fails(const char* call) {
  return environment("ARCOMM_FAKE_NCCL_FAILS") == call;
}

int my_rank = -1;  // of the communicator that was made last

}  // namespace

extern "C" {

int ncclGetVersion(int* version) {
  *version = 22703;
  return 0;
}
int ncclGetUniqueId(UniqueId* id) {
  if (fails("ncclGetUniqueId")) return kInvalidArgument;
  arcomm::fake::draw_id(id->internal);
  return 0;
}
int ncclCommInitRank(void** comm, int ranks, UniqueId id, int rank) {
  if (fails("ncclCommInitRank")) return kInvalidArgument;
  my_rank = rank;
  *comm = new Ranks(id.internal, ranks, rank);
  return 0;
}
int ncclAllReduce(const void* send, void* recv, std::size_t count, int dtype, int op, void* comm,
                  void*) {
  if (dtype != kFloat32 || count * sizeof(float) > arcomm::fake::kMostBytes || op == kProd)
    return kInvalidArgument;
  static_cast<Ranks*>(comm)->all_reduce(send, recv, count, arcomm::DType::Float32,
                                        op == kMax ? arcomm::ReduceOp::Max : arcomm::ReduceOp::Sum,
                                        environment("ARCOMM_FAKE_WRONG") == "nccl");
  return 0;
}
int ncclCommGetAsyncError(void*, int* state) {
  *state = 0;
  return 0;
}
// Looked for, and not called by a process of one rank.
int ncclCommInitAll(void**, int, const int*) {
  return kInvalidArgument;
}
int ncclGroupStart() {
  return kInvalidArgument;
}
int ncclGroupEnd() {
  return kInvalidArgument;
}
const char* ncclGetErrorString(int) {
  return "a fake fails";
}
int ncclMemAlloc(void** memory, std::size_t bytes) {
  if (fails("ncclMemAlloc") && my_rank == 1) return kInvalidArgument;
  *memory = std::malloc(bytes);
  return 0;
}
int ncclCommWindowRegister(void* comm, void* memory, std::size_t, void** window, int flags) {
  static_cast<Ranks*>(comm)->meet();
  const bool has_windows = environment("ARCOMM_FAKE_NO_WINDOWS").empty() &&
                           environment("NCCL_NVLS_ENABLE") == "0" && flags == kSymmetric;
  *window = has_windows ? memory : nullptr;
  return 0;
}

}  // extern "C"
