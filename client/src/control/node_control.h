// The daemon's NodeControl service, call by call. Thread: any. Holds no session state, but for
// which calls nobody knows the end of.
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "client/src/control/control_channel.h"
#include "client/src/session/deadline.h"
#include "proto/coding.h"
#include "proto/fd_message.h"
#include "proto/gpu/in_stream_call.h"
#include "proto/memory_handle.h"
#include "proto/operation_spec.h"
#include "proto/status.h"
#include "proto/types.h"

namespace arcomm::client {

struct SessionKey {
  SessionId id;
  std::array<std::byte, kTokenBytes> token{};  // proves that the session is ours
};

struct Attached {
  SessionKey key;
  std::uint64_t fd_ticket = 0;
  std::uint32_t daemon_version = 0;
  std::string device;
  std::uint64_t default_timeout_ms = 0;
  std::uint64_t segment_limit_bytes = 0;
  std::uint32_t max_in_flight = 0;
  bool on_gpus = false;
  std::uint32_t max_chunks = 0;  // of one registration; 0: the daemon knows none
  std::string peer_address;      // the daemon's, as other daemons know it; "": it knows none
};

struct NewCommunicator {
  std::string_view unique_id;
  int rank = 0, ranks = 0;
  std::uint64_t timeout_ms = 0;
  std::string_view device{};  // "GPU-<uuid>", in a session on GPUs
  std::vector<std::string> visible_gpus{};
  InStreamHindrance in_stream_hindrance = InStreamHindrance::None;
  Coding default_coding{};
  std::uint32_t most_sms = 0;
  std::uint64_t most_in_call_bytes = 0;  // on the host; 0: the daemon's choice
};
struct CreatedCommunicator {
  MemberId member;
  std::uint64_t epoch = 0;
  std::uint64_t segment_limit_bytes = 0;  // 0: the session's
  // On GPUs: mailbox memory, doorbells; image, exchanges. On the host: the memory of
  // proto/host/in_call.h, where exchange_bytes is not 0.
  std::uint64_t fd_ticket = 0;
  std::uint64_t mailbox_bytes = 0;
  std::uint64_t exchange_bytes = 0;  // 0: neither image nor exchanges
  std::string launch_table;          // encoded: proto/gpu/launch_table.h
  std::string why_no_codecs;         // on GPUs of several nodes; "" where they are served
  std::uint64_t max_timeout_ms = 0;  // of in-stream operations
};

// A piece of memory: a descriptor that was offered, or, where that is 0, a handle.
struct NewGpuChunk {
  std::uint64_t bytes = 0;
  std::uint64_t offered_fd = 0;
  FabricHandle fabric{};
};

// A whole allocation of a GPU's memory: a handle, a descriptor that was offered, or the pieces that
// lie behind one another.
struct NewGpuBuffer {
  std::string_view device{};  // "GPU-<uuid>"
  std::uint64_t bytes = 0;
  std::string_view ipc_handle{};
  std::uint64_t offered_fd = 0;
  std::vector<NewGpuChunk> chunks{};
};

struct SharedBuffer {
  BufferId buffer;
  std::uint64_t length_bytes = 0;
  std::uint64_t fd_ticket = 0;  // of an allocation
};

struct NewPlan {
  MemberId member;
  BufferId send_buffer;
  std::uint64_t send_offset_bytes = 0;
  BufferId recv_buffer;
  std::uint64_t recv_offset_bytes = 0;
  OperationSpec spec;
  std::uint64_t timeout_ms = 0;
  std::uint32_t ahead = 0;  // so many more will be made in the session's ring
};

struct Described {
  std::string state;  // "ready", "revoked: <why>"
  Reason reason = Reason::None;
  Rank culprit = kNoRank;
  std::uint64_t epoch = 0;
};

// Of a call that was to let something go: the daemon, or this session of it, or the thing itself is
// no more, and so nothing is left to let go.
bool is_gone(const Error& why);

class NodeControl {
 public:
  // Behind the deadline of a call, or before it: longer than a daemon's turn, and not for callers
  // to notice.
  static constexpr std::chrono::milliseconds kTakeBackFor{20};

  explicit NodeControl(std::string socket_path,
                       std::chrono::milliseconds take_back_for = kTakeBackFor)
      : channel_(std::move(socket_path)), take_back_for_(take_back_for) {}

  Result<Attached> attach(std::string_view device, std::string_view process_name,
                          Deadline deadline);
  Result<CreatedCommunicator> create_communicator(const SessionKey& session,
                                                  const NewCommunicator& wanted, Deadline deadline);
  Status destroy_communicator(const SessionKey& session, MemberId member, Deadline deadline);
  Status abort_communicator(const SessionKey& session, MemberId member, std::string_view why,
                            Deadline deadline);
  // device: "" on the host.
  Result<SharedBuffer> allocate_buffer(const SessionKey& session, std::uint64_t bytes,
                                       std::string_view device, Deadline deadline);
  Result<SharedBuffer> register_buffer(const SessionKey& session, std::uint64_t offered_fd,
                                       std::uint64_t offset_bytes, std::uint64_t length_bytes,
                                       Deadline deadline);
  Result<SharedBuffer> register_gpu_buffer(const SessionKey& session, const NewGpuBuffer& wanted,
                                           Deadline deadline);
  Status release_buffer(const SessionKey& session, BufferId buffer, Deadline deadline);
  // Descriptors that were offered and will not be registered; those that are no more are no error.
  Status withdraw_offers(const SessionKey& session, const std::vector<std::uint64_t>& tickets,
                         Deadline deadline);
  Result<PlanId> create_plan(const SessionKey& session, const NewPlan& wanted, Deadline deadline);
  Status destroy_plan(const SessionKey& session, PlanId plan, Deadline deadline);
  Result<Described> describe(const SessionKey& session, MemberId member, Deadline deadline);
  Status detach(const SessionKey& session, Deadline deadline);

 private:
  // Of a call whose end nobody knows: the daemon is told that it shall have given nothing, now or,
  // where it does not answer, before the session's next call that has a number.
  struct InDoubt {
    SessionId session;
    std::uint64_t call = 0;
  };
  static constexpr std::ptrdiff_t kMostInDoubt = 64;  // of a session, the last ones

  // A number for a call, once those before it are settled.
  std::uint64_t next_call(const SessionKey& session, Deadline deadline);
  void take_back(const SessionKey& session, std::uint64_t call);
  void settle(const SessionKey& session, Deadline deadline);

  ControlChannel channel_;
  const std::chrono::milliseconds take_back_for_;
  std::atomic<std::uint64_t> next_call_{1};
  std::mutex mutex_;
  std::vector<InDoubt> in_doubt_;  // guarded by mutex_
};

}  // namespace arcomm::client
