// The host's operations between nodes: this node's partial results are computed, and all nodes'
// combined, on the worker's thread, a chunk at a time, so that it comes back to its rings; bytes
// travel on the links' threads meanwhile. Thread: the worker's. Never blocks.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <unordered_map>
#include <vector>

#include "daemon/exec/net/links/stalled_links.h"
#include "daemon/exec/net/network_executor.h"
#include "daemon/exec/net/node_group.h"
#include "daemon/exec/net/operations/direct_operation.h"
#include "daemon/exec/net/operations/exchange_operation.h"
#include "daemon/exec/net/operations/ring_operation.h"
#include "daemon/exec/net/operations/seat_reduction.h"
#include "daemon/memory/staging_pool.h"
#include "daemon/telemetry/flight_recorder.h"

namespace arcomm {

class HostNetwork final : public NetworkExecutor {
 public:
  // Links outlive it, or at least their streams and receivers are gone before it goes.
  HostNetwork(StagingPool& pool, Links& links) : pool_(pool), links_(links) {}

  void record_with(FlightRecorder& recorder) override { recorder_ = &recorder; }
  Status form(Communicator& communicator, const CommunicatorSpec& spec) override;
  void forget(Communicator& communicator) override;
  std::span<const std::byte> inline_data(Communicator& communicator,
                                         const Arrival& arrival) override;
  Status receive(Communicator& communicator, std::uint32_t node, net::MessageKind kind,
                 const net::FrameHeader& names, std::span<const std::byte> body) override;

  Backend::Started start(Communicator& communicator, const OfferedData& offered,
                         std::uint64_t now_ns, Failure& failure) override;
  bool work() override;
  bool collect(std::vector<Outcome>& outcomes) override;
  void stop(Communicator& communicator) override;
  bool idle() const override { return running_.empty(); }
  // Something runs, and nothing of it can go on before bytes have come or left.
  bool awaits_peers() const;

 private:
  // Operations that may be offered before the oldest of them has run.
  static constexpr std::uint64_t kOfferedAhead = 16;

  struct Member {
    Member(std::unique_ptr<NodeGroup> its, bool one_seat)
        : group(std::move(its)),
          one_seat_each(one_seat),
          exchange(*group),
          direct(*group),
          ring(*group) {}
    std::unique_ptr<NodeGroup> group;
    const bool one_seat_each;  // every node has one
    ExchangeOperation exchange;
    DirectOperation direct;
    RingOperation ring;
    // Whose data went with their offers: seq + 1, and when.
    struct Inlined {
      std::uint64_t behind = 0, at_ns = 0;
    };
    std::array<Inlined, kOfferedAhead> inlined{};
  };
  struct Run {
    Communicator* communicator = nullptr;
    Member* member = nullptr;
    NetworkOperation* operation = nullptr;
    bool is_stopped = false, is_told = false;
    bool has_moved = true;  // when it was looked at last
    StalledLinks stalled = {};
    Failure failure;  // its own
  };

  Member* find(const Communicator& communicator) const;
  NetworkQuestion question_of(const Member& member, const Signature& signature) const;
  NetworkOperation& operation_of(Member& member, NetworkAlgorithm algorithm) const;
  void note_damage(Run& run);
  void note_steps(NodeGroup& group);
  void let_go(Run& run);
  static std::vector<StalledLinks::Peer> peers_of(const Run& run);
  void tend_leaving();

  StagingPool& pool_;
  Links& links_;
  FlightRecorder* recorder_ = nullptr;
  std::unordered_map<const Communicator*, std::unique_ptr<Member>> members_;
  std::vector<Run> running_;
  std::size_t worked_last_ = 0;
  std::vector<std::unique_ptr<Member>> leaving_;  // peers' bytes may still come, or ours be on loan
  SeatReduction offered_seats_;
  std::vector<std::byte> offered_room_;  // for one operation's partial result
};

}  // namespace arcomm
