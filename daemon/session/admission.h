// The line between a stranger's bytes and an Operation: ids are resolved with their generation and
// owner, ranges are bounded against the mapping, quota is charged. Past it nothing is untrusted.
// Thread: the worker's. Allocates nothing.
#pragma once

#include <cstdint>

#include "config/settings.h"
#include "daemon/comm/communicator_table.h"
#include "daemon/memory/buffer_registry.h"
#include "daemon/memory/pool.h"
#include "daemon/plan/operation.h"
#include "daemon/session/persistent_plan.h"
#include "daemon/session/session.h"
#include "proto/gpu/device_mailbox.h"
#include "proto/ring/decode.h"

namespace arcomm {

struct AdmissionLimits {
  static AdmissionLimits from(const Settings& settings, bool draining);

  std::uint64_t default_timeout_ns = 30'000'000'000;
  std::uint64_t max_timeout_ns = 3'600'000'000'000;
  std::uint64_t max_in_flight_per_user = 4096;
  bool draining = false;        // only operations that another rank has begun
  bool doorbells_only = false;  // GPU workers: nothing starts in the ring
};

struct Admitted {
  enum class Verdict : std::uint8_t {
    Done,     // `operation` is charged to the session
    Refused,  // `failure` says why; `member` and `seq` are set where the refusal spends a seq of
              // the communicator
    Broken,   // not a request: quarantine the session
  };
  Verdict verdict = Verdict::Broken;
  Operation* operation = nullptr;
  Failure failure;
  std::uint64_t ticket = 0;
  std::uint64_t seq = 0;
  Member* member = nullptr;
  // The caller skipped operations: its communicator can never be in step again.
  bool out_of_step = false;
};

// A range that may be used: `buffer` is null for an empty one.
struct CheckedRange {
  Buffer* buffer = nullptr;
  std::byte* address = nullptr;
};

class Admission {
 public:
  Admission(const CommunicatorTable& communicators, BufferRegistry& buffers, const PlanTable& plans,
            Pool<Operation>& operations)
      : communicators_(communicators), buffers_(buffers), plans_(plans), operations_(operations) {}

  // `slot` is a private copy.
  Admitted admit(Session& session, const ring::WorkRequest& slot, std::uint64_t now_ns) const;

  // The start of a plan through the member's doorbell: its rank's next operation.
  Admitted admit_doorbell(Session& session, MemberId member, Doorbell doorbell,
                          std::uint64_t now_ns) const;

  // The member of a session; null for one that is unknown, stale or of another session.
  Member* find_member(SessionId session, MemberId member) const;
  // Whether such a member's operation may have its codec.
  Failure check_codec(const Member& member, const Signature& signature) const;
  // Ranges of `signature`: inside their buffers, aligned to the element, equal or disjoint.
  Failure check_ranges(SessionId session, const Signature& signature, const ring::BufferRange& send,
                       const ring::BufferRange& recv, CheckedRange& checked_send,
                       CheckedRange& checked_recv) const;

  AdmissionLimits limits;

 private:
  struct Asked {
    ring::Request request;
    ring::Decode form = ring::Decode::Done;
    const char* detail = "";  // where the form is wrong
    bool by_doorbell = false;
    std::uint32_t identity = kNoIdentity;
  };
  Admitted check(Session& session, const Asked& asked, std::uint64_t now_ns) const;

  const CommunicatorTable& communicators_;
  BufferRegistry& buffers_;
  const PlanTable& plans_;
  Pool<Operation>& operations_;
};

}  // namespace arcomm
