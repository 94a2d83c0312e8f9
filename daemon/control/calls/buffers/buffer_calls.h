// The calls about memory: allocated here or offered by the client, and released. Does host memory
// itself, whose pages the memory thread touches; sessions on GPUs are handed to GpuBufferCalls.
// Thread: the control loop.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <unordered_set>

#include "daemon/control/calls/buffers/gpu_buffer_calls.h"
#include "daemon/control/calls/buffers/new_buffer.h"
#include "daemon/control/calls/session_groups.h"
#include "daemon/control/control_state.h"
#include "daemon/control/descriptors/fair_prefault.h"

namespace arcomm {

class BufferCalls {
 public:
  BufferCalls(ControlState& state, FairPrefault& fair_prefault, SessionGroups& groups);

  void allocate_buffer(const Caller& caller, const v1::AllocateBufferRequest& request,
                       Answer<v1::BufferReply> answer);
  // The caller of that allocate_buffer (Caller::call) no longer listens.
  void cancel_allocation(std::uint64_t call);
  void register_buffer(const Caller& caller, const v1::RegisterBufferRequest& request,
                       Answer<v1::BufferReply> answer);
  void release_buffer(const Caller& caller, const v1::ReleaseBufferRequest& request,
                      Answer<v1::Empty> answer);
  // An answer did not reach its caller, who can neither use nor release what it gave.
  void take_back(const Caller& caller, const v1::SessionRef& session,
                 const v1::BufferReply& unheard);
  void take_back(const SessionEntry& session, BufferId unheard);

  // What it waits for is answered with Aborted. What it holds is the ledger's.
  void session_gone(SessionId session);

 private:
  // A caller may have stopped waiting without the daemon's knowing it, as gRPC counts a call's time
  // from when the daemon reads it. Clients fetch the descriptor within the time of the call: what
  // is not fetched so long after it is released.
  static constexpr std::chrono::seconds kTimeToFetch{1};
  Answer<v1::BufferReply> kept_if_fetched(const Caller& caller, SessionId session,
                                          Answer<v1::BufferReply> answer);
  // nullptr: its descriptor was fetched, or it is gone.
  static HeldBuffer* find_unfetched(SessionEntry* session, BufferId buffer);
  void release(const SessionEntry& session, BufferId buffer, Answer<v1::Empty> answer);
  // Of host memory: its user's quota and the node's limits. Fails the buffer, or goes on.
  void charge(const Caller& caller, const std::shared_ptr<NewBuffer>& buffer,
              std::function<void()> then);
  // Of host memory: what the client's control groups allow. Fails the buffer, or goes on.
  void charge_groups(const std::shared_ptr<NewBuffer>& buffer, std::uint64_t call,
                     std::function<void()> then);
  void check_pages(const std::shared_ptr<NewBuffer>& buffer,
                   const std::shared_ptr<UniqueFd>& memory, uid_t uid, std::uint64_t call);
  void forget_buffer(SessionId id, BufferId buffer);

  ControlState& state_;
  GpuBufferCalls on_gpus_;
  FairPrefault& fair_prefault_;
  SessionGroups& groups_;
  std::unordered_set<std::uint64_t> waiting_;  // calls, for room
};

}  // namespace arcomm
