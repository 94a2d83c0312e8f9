// Who is attached and what each session holds here: its token, its charges, and descriptors that
// wait to be fetched or used. The worker holds the rest. An entry's destruction gives everything
// back. Thread: the control loop.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <variant>
#include <vector>

#include "daemon/control/access/caller.h"
#include "daemon/control/limits/client_groups.h"
#include "daemon/control/limits/gpu_shares.h"
#include "daemon/control/limits/quota.h"
#include "daemon/control/rpc/event_loop.h"
#include "daemon/exec/worker/device_worker.h"
#include "daemon/memory/id_table.h"
#include "proto/fd_message.h"
#include "proto/memory_handle.h"
#include "proto/status.h"
#include "proto/types.h"

namespace arcomm {

class InCallExchange;

using SessionToken = std::array<std::byte, kTokenBytes>;

// Of the names that a client sends, as safe_text: no more is kept of its own, or quoted of a
// device's.
inline constexpr std::size_t kNameBytes = 64;
inline constexpr std::size_t kMaxTickets =
    64;  // descriptors of one session that wait to be fetched
// Descriptors of one session that wait to be registered. On GPUs: those of one buffer in pieces,
// and some.
inline constexpr std::size_t kMaxOffersOnHost = 16;
inline constexpr std::size_t kMaxOffers = kMostChunks + kMaxOffersOnHost;
// Of all sessions of a uid: as many as one process for each of 16 GPUs offers at a time.
inline constexpr std::size_t kMaxOffersOfUid = 16 * kMaxOffers;

struct BufferCharges {
  ChargePtr count, bytes, mapping;
  ChargePtr reserved, unfilled;  // host memory
  GroupChargePtr of_group;       // the same
  ChargePtr rest;                // GPU memory: what the device rounded up to
  GpuShares::SharePtr of_gpu;    // GPU memory that the daemon allocated
};
struct HeldBuffer {
  std::uint64_t length_bytes = 0;
  std::uint64_t fd_ticket = 0;     // of its memory, for as long as nobody fetched it
  EventLoop::TimerKey fetched_by;  // of an allocation: what nobody has fetched then is released
  // For GPU memory its worker has a token of them, too (ChargesAtWorkers).
  std::shared_ptr<BufferCharges> charges;
};
// What a call gave to which its client had given a number.
struct NumberedAnswer {
  std::uint64_t call = 0;
  std::variant<BufferId, PlanId> given;
};
struct HeldPlan {
  ChargePtr charge;
  ChargePtr on_gpus;
};
struct HeldMember {
  UniqueIdBytes unique_id{};
  std::uint64_t epoch = 0;
  Rank rank = 0;
  ChargePtr charge;
  // Of its GPU: the first none where it is alone in its communicator.
  GpuShares::SharePtr seat, place, in_stream;
  // The same of its mailbox and its exchange, empty until they are there. Its worker has a token of
  // it, too (ChargesAtWorkers). None on the host.
  std::shared_ptr<GpuShares::SharePtr> memory;
  std::string gpu;
  std::shared_ptr<InCallExchange> in_call;  // on the host, where all ranks are here
};

struct SessionEntry {
  SessionId id;
  SessionToken token{};
  PeerCredentials peer;
  std::string process_name;
  std::size_t worker = 0;              // index of its device worker
  std::string gpu;                     // what it asked for at Attach: "GPU-<uuid>", or ""
  bool on_gpus = false;                // its worker is
  ConnectionNumber attached_over = 0;  // the gRPC connection
  ConnectionNumber bound_to = 0;       // the descriptor connection; 0 until Hello
  EventLoop::TimerKey hello_deadline;
  std::chrono::steady_clock::time_point attached_at;
  ChargePtr charge, mapping;
  // Of its process, with their limits, as SessionGroups found them; none: nobody has asked yet.
  std::optional<std::vector<MemoryGroup>> memory_groups;
  std::unordered_map<BufferId, HeldBuffer> buffers;
  std::vector<HeldPlan> plans;  // paid for: those that it has at its worker, or may have
  std::unordered_map<MemberId, HeldMember> members;
  // The last ones, and the numbers of calls that are taken back and have given nothing yet
  // (NumberedAnswers).
  std::deque<NumberedAnswer> answers;
  std::deque<std::uint64_t> given_up;
  std::size_t tickets_promised = 0;  // of calls under way that will each store one

  std::unordered_map<std::uint64_t, std::vector<UniqueFd>> tickets;
  std::unordered_map<std::uint64_t, UniqueFd> offers;  // the ledger's functions alone change it
};

class SessionLedger {
 public:
  SessionLedger();
  // Gives the entry an id and a random token.
  Result<SessionEntry*> open(SessionEntry entry);
  SessionEntry* find(SessionId id);
  // The session that a caller may speak for: it exists, the token is its own and the uid is the one
  // that attached.
  Result<SessionEntry*> authorize(std::uint64_t session, std::string_view token, uid_t uid);
  // Removes it; `why` is kept for a while, so that a later call learns why its session is gone.
  // Its offers are the caller's from then on.
  std::unique_ptr<SessionEntry> close(SessionId id, Reason reason, std::string why);

  // Room for the ticket that a call under way will store: counted in tickets_promised until then.
  Status promise_ticket(SessionEntry& session);
  std::uint64_t add_ticket(SessionEntry& session, std::vector<UniqueFd> fds);
  Result<std::vector<UniqueFd>> take_ticket(SessionEntry& session, std::uint64_t ticket);
  // Takes `fd` unless it is refused: its close may take long, and is the caller's business then.
  Result<std::uint64_t> add_offer(SessionEntry& session, UniqueFd&& fd);
  Result<UniqueFd> take_offer(SessionEntry& session, std::uint64_t ticket);

  std::size_t size() const { return sessions_.size(); }
  // Whether somebody of another range (daemon/telemetry/uid_range.h) is attached to GPUs.
  bool has_others_on_gpus(uid_t uid) const;
  template <typename F>
  void for_each(F&& visit) {
    sessions_.for_each([&visit](SessionId, SessionEntry& entry) { visit(entry); });
  }

 private:
  struct Tombstone {
    SessionId id;
    uid_t uid = 0;
    SessionToken token{};
    Reason reason = Reason::None;
    std::string why;
  };

  void forget_offers(uid_t uid, std::size_t count);
  // Of who has most, so that nobody's comings and goings push out another's.
  void forget_a_tombstone();

  IdTable<SessionEntry, SessionId> sessions_;
  std::unordered_map<uid_t, std::size_t> on_gpus_of_;  // sessions, by first_of_range(); none is 0
  std::unordered_map<uid_t, std::size_t> offers_;      // by uid, of all its sessions; none is 0
  std::uint64_t next_ticket_ = 1;
  std::deque<Tombstone> tombstones_;                      // the newest first
  std::unordered_map<uid_t, std::size_t> tombstones_of_;  // by first_of_range(); none is 0
};

}  // namespace arcomm
