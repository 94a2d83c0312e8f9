// What every function of the C ABI begins and ends with: a forked child is refused, no exception
// gets out, and a failure becomes the thread's last error. Thread: any.
#pragma once

#include <chrono>
#include <cstdint>
#include <exception>
#include <memory>
#include <new>
#include <utility>

#include "client/include/arclient.h"
#include "client/src/host/all_reduce.h"
#include "client/src/session/communicator.h"
#include "client/src/session/fork.h"
#include "proto/status.h"

namespace arcomm::client {

// A thread's last failure, as arcGetLastError and arcGetLastErrorInfo show it.
struct LastError {
  Error error{ErrorCode::Ok, Reason::None, "", -1};
  std::uint64_t seq = kNoSeq;  // of the operation that failed, where it was one
};
LastError& last_error();

// Records the error for arcGetLastError and returns its code.
arcResult_t failed(Error why);

// Runs the body of an entry point; it returns a Status.
template <typename Body>
arcResult_t guarded(Body&& body) {
  try {
    failed_seq() = kNoSeq;
    if (is_forked_child()) return failed(forked_error());
    Status status = body();
    return status.ok() ? arcSuccess : failed(std::move(status).error());
  } catch (const std::bad_alloc&) {
    return failed({ErrorCode::ResourceExhausted, Reason::OutOfMemory, "out of memory", -1});
  } catch (const std::exception& why) {
    return failed(error(ErrorCode::Internal, Reason::Bug, "unexpected: ", why.what()));
  }
}

Error null_argument(const char* name);
Result<std::shared_ptr<Communicator>> find(arcComm_t handle);
// Of the communicator, as it is now. Of the one that this thread asked for last it knows without a
// lock.
Result<std::shared_ptr<Member>> find_member(arcComm_t handle);
// How long an operation may take, counted from its call.
std::chrono::milliseconds operation_timeout();

}  // namespace arcomm::client
