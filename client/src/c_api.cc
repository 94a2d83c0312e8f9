// The C ABI: checks what a caller can get wrong, translates, and keeps every exception inside.
#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstring>
#include <exception>
#include <new>
#include <string>
#include <utility>

#include "client/include/arclient.h"
#include "client/src/all_reduce.h"
#include "client/src/buffer.h"
#include "client/src/communicator.h"
#include "client/src/fork.h"
#include "client/src/group.h"
#include "client/src/last_error.h"
#include "client/src/library.h"
#include "client/src/plan.h"
#include "client/src/ticket_table.h"

namespace arcomm::client {
namespace {

static_assert(sizeof(arcUniqueId) == sizeof(UniqueId) && ARC_UNIQUE_ID_BYTES == 128);
static_assert(static_cast<int>(arcUnauthenticated) == static_cast<int>(ErrorCode::Unauthenticated));
static_assert(static_cast<int>(arcReasonBug) == static_cast<int>(Reason::Bug));
static_assert(static_cast<int>(arcUint64) == static_cast<int>(DType::Uint64));
static_assert(static_cast<int>(arcAvg) == static_cast<int>(ReduceOp::Avg));

arcResult_t failed(Error why) {
  LastError& last = last_error();
  last.seq = last.pending_seq;
  last.error = std::move(why);
  return static_cast<arcResult_t>(last.error.code);
}

// Every entry point: refuses forked children, lets no exception out, records the failure.
template <typename Body>
arcResult_t guarded(Body&& body) {
  try {
    last_error().pending_seq = kNoSeq;
    if (is_forked_child()) return failed(forked_error());
    Status status = body();
    return status.ok() ? arcSuccess : failed(std::move(status).error());
  } catch (const std::bad_alloc&) {
    return failed({ErrorCode::ResourceExhausted, Reason::OutOfMemory, "out of memory", -1});
  } catch (const std::exception& why) {
    return failed(error(ErrorCode::Internal, Reason::Bug, "unexpected: ", why.what()));
  }
}

Error null_argument(const char* name) {
  return error(ErrorCode::InvalidArgument, Reason::BadValue, name, " is null");
}

Result<std::shared_ptr<Communicator>> find(arcComm_t handle) {
  std::shared_ptr<Communicator> found =
      communicators().find(reinterpret_cast<std::uintptr_t>(handle));
  if (found) return found;
  if (handle == nullptr) return null_argument("comm");
  return error(ErrorCode::NotFound, Reason::UnknownHandle, "comm ", static_cast<void*>(handle),
               " is not a communicator, or was destroyed");
}

Result<std::shared_ptr<Plan>> find(arcPlan_t handle) {
  std::shared_ptr<Plan> found = plans().find(reinterpret_cast<std::uintptr_t>(handle));
  if (found) return found;
  if (handle == nullptr) return null_argument("plan");
  return error(ErrorCode::NotFound, Reason::UnknownHandle, "plan ", static_cast<void*>(handle),
               " is not a plan, or was destroyed");
}

std::chrono::milliseconds operation_timeout() {
  return std::chrono::milliseconds(Library::instance().timeout_ms());
}

Error inside_group(const char* call) {
  return error(ErrorCode::FailedPrecondition, Reason::BadValue, call,
               " would wait for operations of a group that is still open: call arcGroupEnd first");
}

Status create_communicator(arcComm_t* comm, int ranks, const UniqueId& id, int rank) {
  Result<std::shared_ptr<Communicator>> made = Communicator::create(id, ranks, rank);
  if (!made) return std::move(made).error();
  *comm = reinterpret_cast<arcComm_t>(communicators().insert(std::move(*made)));
  return {};
}

// Of two threads that release one handle, one gets it and the other an error.
Result<std::shared_ptr<Communicator>> take(arcComm_t handle) {
  Result<std::shared_ptr<Communicator>> found = find(handle);
  if (!found) return found;
  if (communicators().take(reinterpret_cast<std::uintptr_t>(handle))) return found;
  return error(ErrorCode::NotFound, Reason::UnknownHandle, "comm ", static_cast<void*>(handle),
               " was destroyed by another thread");
}

Result<Operation*> prepare_all_reduce(const void* send, void* recv, std::size_t count,
                                      arcDataType_t dtype, arcRedOp_t op, arcComm_t comm,
                                      arcStream_t stream, std::chrono::milliseconds* timeout) {
  Result<std::shared_ptr<Communicator>> communicator = find(comm);
  if (!communicator) return std::move(communicator).error();
  ARC_RETURN_IF_ERROR(check_call(send, recv, count, dtype, op, stream));
  const std::shared_ptr<Member> member = (*communicator)->member();
  if (member->session->lost()) return member->session->submission().loss();
  *timeout = operation_timeout();
  return prepare(member, make_call(send, recv, count, dtype, op), PlanId{},
                 Deadline::after(*timeout));
}

}  // namespace
}  // namespace arcomm::client

using namespace arcomm;  // NOLINT(google-build-using-namespace): this file is the translation
using namespace arcomm::client;  // NOLINT(google-build-using-namespace)

extern "C" {

// ---- library ----

arcResult_t arcInit(const arcConfig_t* config) {
  return guarded([&]() -> Status {
    LibraryConfig wanted;
    if (config != nullptr) {
      // A caller built against an older header has fewer fields; a newer one has more.
      if (config->struct_size < offsetof(arcConfig_t, device)) {
        return error(ErrorCode::InvalidArgument, Reason::BadValue, "config->struct_size is ",
                     config->struct_size, ": start from ARC_CONFIG_INITIALIZER");
      }
      arcConfig_t known = ARC_CONFIG_INITIALIZER;
      std::memcpy(&known, config, std::min(config->struct_size, sizeof(known)));
      if (known.runtime_dir != nullptr) wanted.runtime_dir = known.runtime_dir;
      if (known.device != nullptr) wanted.device = known.device;
      wanted.timeout_ms = known.timeout_ms;
    }
    return Library::instance().init(std::move(wanted));
  });
}

arcResult_t arcFinalize(void) {
  return guarded([] { return Library::instance().finalize(); });
}

arcResult_t arcGetVersion(int* version) {
  return guarded([&]() -> Status {
    if (version == nullptr) return null_argument("version");
    *version = ARC_VERSION_CODE;
    return {};
  });
}

const char* arcGetErrorString(arcResult_t result) {
  if (result == arcInProgress) return "in progress";
  // The texts are literals, and so end in a zero.
  return text_of(static_cast<ErrorCode>(result >= 0 && result <= arcUnauthenticated ? result : 255))
      .data();
}

const char* arcGetReasonString(arcReason_t reason) {
  return text_of(static_cast<Reason>(reason >= 0 && reason <= arcReasonBug ? reason : 255)).data();
}

const char* arcGetLastError(arcComm_t comm) {
  static_cast<void>(comm);
  thread_local std::string text;
  const Error& last = last_error().error;
  text = last.code == ErrorCode::Ok ? std::string() : last.to_string();
  return text.c_str();
}

arcResult_t arcGetLastErrorInfo(arcErrorInfo_t* info) {
  if (info == nullptr || info->struct_size < sizeof(std::size_t)) return arcInvalidArgument;
  const LastError& last = last_error();
  arcErrorInfo_t known{};
  known.struct_size = info->struct_size;
  known.code = static_cast<arcResult_t>(last.error.code);
  known.reason = static_cast<arcReason_t>(last.error.reason);
  known.rank = last.error.rank;
  known.seq = last.seq;
  last.error.message.copy(known.message, sizeof(known.message) - 1);
  std::memcpy(info, &known, std::min(info->struct_size, sizeof(known)));
  return arcSuccess;
}

// ---- communicators ----

arcResult_t arcGetUniqueId(arcUniqueId* id) {
  return guarded([&]() -> Status {
    if (id == nullptr) return null_argument("id");
    const UniqueId made = make_unique_id();
    std::memcpy(id->internal, made.data(), made.size());
    return {};
  });
}

arcResult_t arcCommInitRank(arcComm_t* comm, int ranks, arcUniqueId id, int rank) {
  return guarded([&]() -> Status {
    if (comm == nullptr) return null_argument("comm");
    *comm = nullptr;
    if (ranks < 1 || ranks > kMaxRanks) {
      return error(ErrorCode::InvalidArgument, Reason::BadValue, "ranks is ", ranks, "; 1 to ",
                   kMaxRanks, " are possible");
    }
    if (rank < 0 || rank >= ranks) {
      return error(ErrorCode::InvalidArgument, Reason::BadValue, "rank is ", rank, "; with ", ranks,
                   " ranks it is 0 to ", ranks - 1);
    }
    UniqueId bytes;
    std::memcpy(bytes.data(), id.internal, bytes.size());
    if (bytes == UniqueId{}) {
      return error(
          ErrorCode::InvalidArgument, Reason::BadValue,
          "the unique id is all zero: make it with arcGetUniqueId and hand it to every rank");
    }
    if (Group::of_this_thread().open()) {
      Group::of_this_thread().create(
          [comm, ranks, bytes, rank] { return create_communicator(comm, ranks, bytes, rank); });
      return {};
    }
    return create_communicator(comm, ranks, bytes, rank);
  });
}

arcResult_t arcCommDestroy(arcComm_t comm) {
  return guarded([&]() -> Status {
    if (Group& group = Group::of_this_thread(); group.open()) {
      if (Result<std::shared_ptr<Communicator>> found = find(comm); !found)
        return std::move(found).error();
      group.destroy([comm]() -> Status {
        Result<std::shared_ptr<Communicator>> taken = take(comm);
        return taken ? (*taken)->destroy() : Status(std::move(taken).error());
      });
      return {};
    }
    Result<std::shared_ptr<Communicator>> taken = take(comm);
    return taken ? (*taken)->destroy() : Status(std::move(taken).error());
  });
}

arcResult_t arcCommAbort(arcComm_t comm) {
  return guarded([&]() -> Status {
    Result<std::shared_ptr<Communicator>> taken = take(comm);
    return taken ? (*taken)->abort() : Status(std::move(taken).error());
  });
}

arcResult_t arcCommRebuild(arcComm_t comm) {
  return guarded([&]() -> Status {
    Result<std::shared_ptr<Communicator>> found = find(comm);
    if (!found) return std::move(found).error();
    if (Group& group = Group::of_this_thread(); group.open()) {
      group.create([communicator = std::move(*found)] { return communicator->rebuild(); });
      return {};
    }
    return (*found)->rebuild();
  });
}

arcResult_t arcCommCount(arcComm_t comm, int* ranks) {
  return guarded([&]() -> Status {
    Result<std::shared_ptr<Communicator>> found = find(comm);
    if (!found) return std::move(found).error();
    if (ranks == nullptr) return null_argument("ranks");
    *ranks = (*found)->ranks();
    return {};
  });
}

arcResult_t arcCommUserRank(arcComm_t comm, int* rank) {
  return guarded([&]() -> Status {
    Result<std::shared_ptr<Communicator>> found = find(comm);
    if (!found) return std::move(found).error();
    if (rank == nullptr) return null_argument("rank");
    *rank = (*found)->rank();
    return {};
  });
}

arcResult_t arcCommGetEpoch(arcComm_t comm, uint64_t* epoch) {
  return guarded([&]() -> Status {
    Result<std::shared_ptr<Communicator>> found = find(comm);
    if (!found) return std::move(found).error();
    if (epoch == nullptr) return null_argument("epoch");
    *epoch = (*found)->epoch();
    return {};
  });
}

arcResult_t arcCommGetAsyncError(arcComm_t comm, arcResult_t* state) {
  return guarded([&]() -> Status {
    Result<std::shared_ptr<Communicator>> found = find(comm);
    if (!found) return std::move(found).error();
    if (state == nullptr) return null_argument("state");
    Error said = (*found)->state();
    *state = static_cast<arcResult_t>(said.code);
    if (said.code != ErrorCode::Ok) failed(std::move(said));  // arcGetLastError says why
    return {};
  });
}

// ---- memory ----

arcResult_t arcMemAlloc(void** ptr, size_t bytes) {
  return guarded([&]() -> Status {
    if (ptr == nullptr) return null_argument("ptr");
    *ptr = nullptr;
    if (bytes == 0 || bytes > PTRDIFF_MAX) {
      return error(ErrorCode::InvalidArgument, Reason::BadValue, "cannot allocate ", bytes,
                   " bytes");
    }
    const Deadline deadline = Library::instance().control_deadline();
    Result<std::shared_ptr<Session>> session = Library::instance().session(deadline);
    if (!session) return std::move(session).error();
    Result<void*> memory = allocate_memory(bytes, **session, deadline);
    if (!memory) return std::move(memory).error();
    *ptr = *memory;
    return {};
  });
}

arcResult_t arcMemFree(void* ptr) {
  return guarded([&]() -> Status {
    if (ptr == nullptr) return {};
    return free_memory(ptr, Library::instance().control_deadline());
  });
}

arcResult_t arcMemRegister(void* ptr, size_t bytes) {
  return guarded([&]() -> Status {
    if (ptr == nullptr) return null_argument("ptr");
    if (bytes == 0 || bytes > UINTPTR_MAX - reinterpret_cast<std::uintptr_t>(ptr)) {
      return error(ErrorCode::InvalidArgument, Reason::BadValue, "cannot register ", bytes,
                   " bytes at ", ptr);
    }
    const Deadline deadline = Library::instance().control_deadline();
    Result<std::shared_ptr<Session>> session = Library::instance().session(deadline);
    if (!session) return std::move(session).error();
    return register_memory(ptr, bytes, **session, deadline);
  });
}

arcResult_t arcMemDeregister(void* ptr) {
  return guarded([&]() -> Status {
    if (ptr == nullptr) return null_argument("ptr");
    return deregister_memory(ptr, Library::instance().control_deadline());
  });
}

// ---- AllReduce ----

arcResult_t arcAllReduce(const void* send, void* recv, size_t count, arcDataType_t dtype,
                         arcRedOp_t op, arcComm_t comm, arcStream_t stream) {
  return guarded([&]() -> Status {
    std::chrono::milliseconds timeout{};
    Result<Operation*> operation =
        prepare_all_reduce(send, recv, count, dtype, op, comm, stream, &timeout);
    if (!operation) return std::move(operation).error();
    if (Group& group = Group::of_this_thread(); group.open()) {
      group.add(**operation, timeout, true);
      return {};
    }
    start(**operation, (*operation)->deadline);
    return finish(**operation);
  });
}

arcResult_t arcAllReduceAsync(const void* send, void* recv, size_t count, arcDataType_t dtype,
                              arcRedOp_t op, arcComm_t comm, arcStream_t stream,
                              arcTicket_t* ticket) {
  return guarded([&]() -> Status {
    if (ticket == nullptr) return null_argument("ticket");
    *ticket = 0;
    std::chrono::milliseconds timeout{};
    Result<Operation*> operation =
        prepare_all_reduce(send, recv, count, dtype, op, comm, stream, &timeout);
    if (!operation) return std::move(operation).error();
    const std::uint64_t named = (*operation)->ticket.load(std::memory_order_relaxed);
    if (Group& group = Group::of_this_thread(); group.open()) {
      group.add(**operation, timeout, false);
    } else {
      start(**operation, (*operation)->deadline);
      if (!(*operation)->submitted.load(std::memory_order_relaxed)) return finish(**operation);
    }
    *ticket = named;
    return {};
  });
}

arcResult_t arcTest(arcTicket_t ticket) {
  bool in_progress = false;
  const arcResult_t result = guarded([&] { return test_ticket(ticket, &in_progress); });
  return result == arcSuccess && in_progress ? arcInProgress : result;
}

arcResult_t arcWait(arcTicket_t ticket, uint64_t timeout_ms) {
  return guarded([&] { return wait_ticket(ticket, timeout_ms); });
}

// ---- plans ----

arcResult_t arcPlanCreateAllReduce(arcPlan_t* plan, const void* send, void* recv, size_t count,
                                   arcDataType_t dtype, arcRedOp_t op, arcComm_t comm) {
  return guarded([&]() -> Status {
    if (plan == nullptr) return null_argument("plan");
    *plan = nullptr;
    Result<std::shared_ptr<Communicator>> communicator = find(comm);
    if (!communicator) return std::move(communicator).error();
    ARC_RETURN_IF_ERROR(check_call(send, recv, count, dtype, op, nullptr));
    Result<std::shared_ptr<Plan>> made =
        Plan::create(std::move(*communicator), make_call(send, recv, count, dtype, op));
    if (!made) return std::move(made).error();
    *plan = reinterpret_cast<arcPlan_t>(plans().insert(std::move(*made)));
    return {};
  });
}

arcResult_t arcPlanStart(arcPlan_t plan, arcStream_t stream) {
  return guarded([&]() -> Status {
    Result<std::shared_ptr<Plan>> found = find(plan);
    if (!found) return std::move(found).error();
    ARC_RETURN_IF_ERROR(check_call(nullptr, nullptr, 0, 0, 0, stream));
    const std::chrono::milliseconds timeout = operation_timeout();
    Result<Operation*> operation = (*found)->prepare_start(Deadline::after(timeout));
    if (!operation) return std::move(operation).error();
    if (Group& group = Group::of_this_thread(); group.open()) {
      group.add(**operation, timeout, false);
    } else {
      start(**operation, (*operation)->deadline);
      if (!(*operation)->submitted.load(std::memory_order_relaxed)) return (*found)->wait(0);
    }
    return {};
  });
}

arcResult_t arcPlanWait(arcPlan_t plan, uint64_t timeout_ms) {
  return guarded([&]() -> Status {
    Result<std::shared_ptr<Plan>> found = find(plan);
    if (!found) return std::move(found).error();
    if (Group::of_this_thread().open()) return inside_group("arcPlanWait");
    return (*found)->wait(timeout_ms);
  });
}

arcResult_t arcPlanDestroy(arcPlan_t plan) {
  return guarded([&]() -> Status {
    Result<std::shared_ptr<Plan>> found = find(plan);
    if (!found) return std::move(found).error();
    ARC_RETURN_IF_ERROR((*found)->destroy());
    plans().take(reinterpret_cast<std::uintptr_t>(plan));
    return {};
  });
}

// ---- groups ----

arcResult_t arcGroupStart(void) {
  return guarded([]() -> Status {
    Group::of_this_thread().start();
    return {};
  });
}

arcResult_t arcGroupEnd(void) {
  return guarded([] { return Group::of_this_thread().end(); });
}

}  // extern "C"
