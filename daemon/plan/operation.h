// One rank's request after admission. Nothing in it is untrusted: ids are resolved, ranges lie
// inside mapped buffers, the deadline is absolute. Thread: the worker's. Times are CLOCK_MONOTONIC
// nanoseconds.
#pragma once

#include <cstddef>
#include <cstdint>

#include "daemon/plan/failure.h"
#include "daemon/telemetry/flight_recorder.h"
#include "proto/gpu/captured_identity.h"
#include "proto/operation_spec.h"
#include "proto/types.h"

namespace arcomm {

class Session;

// What all ranks of one operation must agree on: what it is, with the extents of this part.
struct Signature : OperationSpec {
  // A large operation comes as several: parts of different wholes may look alike, and must not
  // match. Both count what is sent.
  std::uint64_t total_count = 0;
  std::uint64_t first_element = 0;

  static Signature whole(const OperationSpec& spec) { return {spec, spec.send_count, 0}; }
  friend bool operator==(const Signature&, const Signature&) = default;
};

struct Operation {
  std::uint64_t ticket = 0;
  std::uint64_t seq = 0;
  Session* session = nullptr;  // outlives its operations
  MemberId member;
  Rank rank = kNoRank;     // global
  std::uint32_t seat = 0;  // its place among those of this node
  Signature signature;
  std::uint32_t identity = kNoIdentity;  // as its client says; the same on all ranks
  PlanId plan;                           // invalid where it is no start of one
  // Started through a doorbell: its client waits in a stream, and hears of it in its mailbox.
  bool by_doorbell = false;
  const std::byte* send = nullptr;
  std::byte* recv = nullptr;
  BufferId send_buffer, recv_buffer;  // held until it has ended; invalid where it moves nothing
  std::uint64_t admitted_ns = 0;
  std::uint64_t deadline_ns = 0;
  Failure outcome;  // set when it ends
  FlightRecord record;
  Operation* next = nullptr;  // in the list it is on
};

// A first-in-first-out list through Operation::next; an operation is on at most one.
class OperationList {
 public:
  bool empty() const { return first_ == nullptr; }
  void push(Operation* operation) {
    operation->next = nullptr;
    (first_ == nullptr ? first_ : last_->next) = operation;
    last_ = operation;
  }
  Operation* pop() {
    Operation* operation = first_;
    if (operation != nullptr) first_ = operation->next;
    return operation;
  }

 private:
  Operation* first_ = nullptr;
  Operation* last_ = nullptr;
};

}  // namespace arcomm
