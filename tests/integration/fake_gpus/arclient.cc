// What `arctl bench --device gpu` calls of libarclient, with neither a daemon nor a GPU. Results
// are wrong where ARCOMM_FAKE_WRONG is "arcommd". ARCOMM_FAKE_END: "fails", "crashes" is how a rank
// leaves its communicator.
#include "client/include/arclient.h"

#include <string_view>

#include "tests/integration/fake_gpus/ranks.h"

namespace {

using arcomm::fake::Ranks;

Ranks* ranks_of(arcComm_t comm) {
  return static_cast<Ranks*>(static_cast<void*>(comm));
}

bool is_wrong() {
  const char* who = std::getenv("ARCOMM_FAKE_WRONG");
  return who != nullptr && std::string_view(who) == "arcommd";
}

}  // namespace

extern "C" {

arcResult_t arcInit(const arcConfig_t*) {
  return arcSuccess;
}
arcResult_t arcFinalize() {
  return arcSuccess;
}
const char* arcGetLastError(arcComm_t) {
  return "a fake fails";
}
arcResult_t arcGetLastErrorInfo(arcErrorInfo_t*) {
  return arcSuccess;
}
arcResult_t arcGetUniqueId(arcUniqueId* id) {
  arcomm::fake::draw_id(id->internal);
  return arcSuccess;
}
arcResult_t arcCommInitRank(arcComm_t* comm, int ranks, arcUniqueId id, int rank) {
  *comm = static_cast<arcComm_t>(static_cast<void*>(new Ranks(id.internal, ranks, rank)));
  return arcSuccess;
}
arcResult_t arcCommDestroy(arcComm_t comm) {
  const char* const end = std::getenv("ARCOMM_FAKE_END");
  if (end != nullptr && std::string_view(end) == "crashes") std::abort();
  delete ranks_of(comm);
  return end != nullptr ? arcInternal : arcSuccess;
}
arcResult_t arcCommGetAsyncError(arcComm_t, arcResult_t* state) {
  *state = arcSuccess;
  return arcSuccess;
}
arcResult_t arcMemAlloc(void** ptr, size_t bytes) {
  *ptr = std::calloc(1, bytes);
  return arcSuccess;
}
arcResult_t arcMemFree(void* ptr) {
  std::free(ptr);
  return arcSuccess;
}
arcResult_t arcAllReduce(const void* send, void* recv, size_t count, arcDataType_t dtype,
                         arcRedOp_t op, arcComm_t comm, arcStream_t) {
  const auto type = static_cast<arcomm::DType>(dtype);
  if (count * arcomm::size_of(type) > arcomm::fake::kMostBytes) return arcInvalidArgument;
  ranks_of(comm)->all_reduce(send, recv, count, type, static_cast<arcomm::ReduceOp>(op),
                             is_wrong());
  return arcSuccess;
}

// The host's, which the same program calls elsewhere.
arcResult_t arcCommAbort(arcComm_t) {
  return arcUnimplemented;
}
arcResult_t arcMemRegister(void*, size_t) {
  return arcUnimplemented;
}
arcResult_t arcMemDeregister(void*) {
  return arcUnimplemented;
}
arcResult_t arcAllReduceAsync(const void*, void*, size_t, arcDataType_t, arcRedOp_t, arcComm_t,
                              arcStream_t, arcTicket_t*) {
  return arcUnimplemented;
}
arcResult_t arcWait(arcTicket_t, uint64_t) {
  return arcUnimplemented;
}
arcResult_t arcPlanCreateAllReduce(arcPlan_t*, const void*, void*, size_t, arcDataType_t,
                                   arcRedOp_t, arcComm_t) {
  return arcUnimplemented;
}
arcResult_t arcPlanStart(arcPlan_t, arcStream_t) {
  return arcUnimplemented;
}
arcResult_t arcPlanWait(arcPlan_t, uint64_t) {
  return arcUnimplemented;
}
arcResult_t arcPlanDestroy(arcPlan_t) {
  return arcUnimplemented;
}

}  // extern "C"
