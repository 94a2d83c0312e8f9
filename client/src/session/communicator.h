// One rank of a communicator, over all its epochs.
// Thread: any. Ownership: the handle table and calls in progress; operations hold its Member.
#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <utility>

#include "client/cuda/gpu.h"
#include "client/src/host/member.h"
#include "client/src/session/deadline.h"
#include "client/src/session/handle_table.h"
#include "proto/coding.h"
#include "proto/status.h"
#include "proto/types.h"

namespace arcomm::client {

using UniqueId = std::array<char, 128>;

// What all ranks say alike, kept over rebuilds.
struct CommunicatorConfig {
  Coding all_reduce;           // of AllReduces that say nothing themselves
  std::uint32_t most_sms = 0;  // of each GPU; 0: no bound
};

class Communicator {
 public:
  // Blocks until all ranks have called. gpu: the rank's; null on the host, or for the one that is
  // current here.
  static Result<std::shared_ptr<Communicator>> create(const UniqueId& id, int ranks, int rank,
                                                      const CommunicatorConfig& config,
                                                      std::shared_ptr<Gpu> gpu);
  ~Communicator();
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;

  int ranks() const { return ranks_; }
  int rank() const { return rank_; }
  std::uint64_t epoch() const;
  std::shared_ptr<Member> member() const;
  // Ok while usable. May ask the daemon, briefly and at most every few milliseconds.
  Error state();

  Status rebuild();
  Status destroy();
  Status abort();

 private:
  Communicator(const UniqueId& id, int ranks, int rank, const CommunicatorConfig& config,
               std::shared_ptr<Gpu> gpu)
      : id_(id), ranks_(ranks), rank_(rank), config_(config), gpu_(std::move(gpu)) {}
  Result<std::shared_ptr<Member>> join(Deadline deadline, bool again);
  // Ok once the daemon can no longer write on the member's behalf.
  Status leave(const Error& why, Deadline deadline);
  Status leave_daemon(const Member& member, Deadline deadline);

  const UniqueId id_;
  const int ranks_, rank_;
  const CommunicatorConfig config_;
  std::shared_ptr<Gpu> gpu_;  // known once the first join has ended
  mutable std::mutex mutex_;
  std::shared_ptr<Member> member_;
  Error asked_{ErrorCode::Ok, Reason::None, "", -1};  // what the daemon last said
  Deadline::Clock::time_point asked_at_{};
};

using CommunicatorTable = HandleTable<Communicator>;
CommunicatorTable& communicators();

UniqueId make_unique_id();

}  // namespace arcomm::client
