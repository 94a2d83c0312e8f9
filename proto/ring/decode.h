// From a copied slot to typed values. Only the form is checked here; ids, ranges and quotas are
// admission's.
#pragma once

#include "proto/operation_spec.h"
#include "proto/ring/layout.h"
#include "proto/status.h"
#include "proto/types.h"

namespace arcomm::ring {

struct BufferRange {
  BufferId buffer;
  std::uint64_t offset_bytes = 0;
};

struct Request {
  std::uint64_t ticket = 0;
  MemberId member;
  std::uint64_t seq = 0;
  std::uint64_t timeout_ns = 0;
  std::uint64_t submitted_ns = 0;
  PlanId plan;  // what is started; invalid where this is an operation, and only then has the rest
  BufferRange send;
  BufferRange recv;
  OperationSpec spec;               // of this part
  std::uint64_t total_count = 0;    // that the whole sends; spec.send_count where this is the whole
  std::uint64_t first_element = 0;  // of this part
};

// A slot with kPlanMagic.
struct PlanRequest {
  std::uint64_t ticket = 0;
  PlanId removed;  // valid: this one shall go, and the rest says nothing
  MemberId member;
  std::uint64_t timeout_ns = 0;
  BufferRange send;
  BufferRange recv;
  OperationSpec spec;
};

enum class Decode : std::uint8_t {
  Done,
  BadValue,  // this request is refused; `detail` says why
  BadMagic,  // not a request at all: the session is quarantined
};

// `slot` must be a private copy. On BadValue `request.ticket`, `.member` and `.seq` are filled, so
// that the refusal finds its caller; `detail` is a static string. Allocates nothing.
Decode decode(const WorkRequest& slot, Request& request, const char*& detail);
// The same; `request.ticket` is always filled.
Decode decode(const WorkRequest& slot, PlanRequest& request, const char*& detail);

}  // namespace arcomm::ring
