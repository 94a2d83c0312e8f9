// What a worker has to do with other nodes: its links, what comes over them for which communicator,
// and what its communicators have to tell. Thread: the worker's, but for `ring`.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <span>
#include <string>
#include <unordered_map>

#include "config/settings.h"
#include "daemon/comm/communicator_table.h"
#include "daemon/exec/net/agreement/early_messages.h"
#include "daemon/exec/net/agreement/node_agreement.h"
#include "daemon/exec/net/agreement/offer_memory.h"
#include "daemon/exec/net/links/link_table.h"
#include "daemon/exec/net/network_executor.h"
#include "daemon/exec/specs.h"

namespace arcomm {

class BetweenNodes final : public OfferedData, private LinkTable::Listener {
 public:
  // The table outlives it no longer than its communicators do: neither uses the other as it goes.
  BetweenNodes(CommunicatorTable& table, Metrics& metrics) : table_(table), metrics_(metrics) {}
  BetweenNodes(const BetweenNodes&) = delete;
  BetweenNodes& operator=(const BetweenNodes&) = delete;

  Links& links() { return links_; }
  // Null: the device cannot span nodes.
  void use(NetworkExecutor* executor) { executor_ = executor; }
  // net.staging_bytes: offers are kept in a part of it. Before the first communicator.
  void use_staging(std::uint64_t bytes) { offers_.use_bytes(bytes / OfferMemory::kPart); }
  // Before the first link. link_lost: see WorkerEvents. ring: called by the streams' threads when
  // something has come; it wakes the worker.
  void tell(std::function<void(PeerId, Error)> link_lost) { link_lost_ = std::move(link_lost); }
  void ring_with(std::function<void()> ring) { ring_ = std::move(ring); }

  // As DeviceWorker's of these names. Descriptors to sleep on.
  Result<std::vector<int>> open_link(LinkSpec spec);
  void close_link(PeerId peer, const Error& why);
  // The end: all links go, when what waits for its sending has left, or 0.1 s later. False: they
  // are not gone yet, and may still hold what is on loan; call again.
  bool end_links() {
    links_.close_all(ended());
    return links_.is_over();
  }

  // The world of a communicator that is to span nodes; an error where it cannot.
  Result<World> check(const CommunicatorSpec& spec) const;
  // It is there now. After an error it must be dissolved.
  Status span(Communicator& communicator, const CommunicatorSpec& spec);
  void revoked(Communicator& communicator);

  // Tells what is to be told, and moves what can be moved. It looks at the connections with each
  // call while there is something going on between nodes, else each kIdleNs. Whether it found work.
  bool poll(std::uint64_t now_ns, bool looks_anyway = false);
  // Waiting ranks, and what is kept for too long. Cheap before next_ns().
  void tend(std::uint64_t now_ns);
  std::uint64_t next_ns() const { return next_ns_; }
  // Nothing here will ever find work: no link is open, and no communicator spans nodes.
  bool is_alone() const { return links_.empty() && agreements_.empty(); }
  bool has_links() const { return !links_.empty(); }
  std::vector<LinkSnapshot> link_snapshots() const { return links_.snapshots(); }
  bool must_be_polled() const { return links_.must_be_polled(); }
  bool is_sending() const { return links_.is_sending(); }
  // Something was told or has come within the last millisecond.
  bool is_lively(std::uint64_t now_ns) const { return now_ns < lively_until_ns_; }

  std::span<const std::byte> inline_data(const Communicator& communicator, std::uint64_t seq,
                                         std::uint32_t node) const override;
  std::uint64_t turn_of(const Communicator& communicator, std::uint64_t seq) const override;
  // To the metrics: what was dropped since the last call, by whichever worker, and why.
  void count_dropped();

 private:
  static constexpr std::uint64_t kLivelyNs = 1'000'000;
  static constexpr std::uint64_t kIdleNs = 100'000;

  static Error ended();
  Status message_came(Link& from, const net::FrameHeader& names,
                      const net::Message& message) override;
  void link_ended(PeerId peer, const std::string& name, const Error& why) override;
  // Communicators that span the peer end.
  void lose(PeerId peer, const std::string& name, const Error& why);
  Status take(NodeAgreement& agreement, PeerId from, const net::FrameHeader& names,
              const net::Message& message, std::uint64_t now_ns);
  bool pass_on(std::uint64_t now_ns);
  void offer_in_turn(std::uint64_t now_ns);
  NodeAgreement* agreement_of(const Communicator& communicator) const {
    return static_cast<NodeAgreement*>(communicator.elsewhere.get());
  }
  void look_by(std::uint64_t time_ns) { next_ns_ = std::min(next_ns_, time_ns); }

  CommunicatorTable& table_;
  Metrics& metrics_;
  NetworkExecutor* executor_ = nullptr;
  std::function<void(PeerId, Error)> link_lost_;
  std::function<void()> ring_;
  std::unordered_map<std::uint64_t, NodeAgreement*> agreements_;  // by number
  OfferMemory offers_{Settings::Net{}.staging_bytes / OfferMemory::kPart};
  EarlyMessages early_;
  std::uint64_t other_epoch_ = 0;        // messages, not counted yet
  std::deque<NodeAgreement*> offering_;  // what has something to offer, in turn
  std::uint64_t lively_until_ns_ = 0, polled_ns_ = 0;
  std::uint64_t next_ns_ = NodeAgreement::kNever;
  LinkTable links_{*this, [this] {
                     if (ring_) ring_();
                   }};
};

}  // namespace arcomm
