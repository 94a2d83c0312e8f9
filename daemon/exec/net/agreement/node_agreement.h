// How the nodes of one communicator agree on each operation: what all seats here have called is
// offered to the others, at most kMostAhead operations ahead of the oldest open one; with the
// offers of all nodes, and all alike, it may run. What ends an operation or the communicator here
// is told to the others, and what they tell is done here. Thread: the worker's.
//
// Deadlines: an offer says how much time its node's ranks have left. An operation ends on a node at
// the earliest of its own ranks' deadlines and, kGraceNs later than they, all that was said,
// counted from when the offer came: what it took on its way is not taken off. So nobody waits for a
// node that has frozen for longer than anybody wants to, and where all are well the node whose
// deadline it is says first who was missing.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "daemon/comm/communicator_table.h"
#include "daemon/exec/net/agreement/node_offers.h"
#include "daemon/exec/net/agreement/node_waits.h"
#include "daemon/exec/net/links/link_table.h"
#include "daemon/exec/net/network_executor.h"

namespace arcomm {

class NodeAgreement final : public Elsewhere {
 public:
  static constexpr std::uint64_t kMostAhead = 8;
  // A node that waits for longer tells the others which ranks have called.
  static constexpr std::uint64_t kWaitingNs = 10'000'000;
  static constexpr std::uint64_t kGraceNs = 10'000'000;
  static constexpr std::uint64_t kNever = ~std::uint64_t{0};

  struct Parts {
    Communicator& communicator;  // which owns it
    CommunicatorTable& table;
    LinkTable& links;
    NetworkExecutor& executor;
    OfferMemory& memory;
    uid_t uid = 0;  // whose ranks these are
    std::uint64_t number = 0;
    std::vector<NodeSpec> nodes;
    std::function<void(std::uint64_t number)> on_end;
  };

  explicit NodeAgreement(Parts parts);
  // The executor forgets the communicator.
  ~NodeAgreement() override;
  NodeAgreement(const NodeAgreement&) = delete;
  NodeAgreement& operator=(const NodeAgreement&) = delete;

  Communicator& communicator() const { return parts_.communicator; }
  std::uint64_t number() const { return parts_.number; }
  std::uint32_t epoch() const { return static_cast<std::uint32_t>(communicator().epoch); }
  // The node's index; none: it has no rank here.
  std::optional<std::uint32_t> node_of(PeerId peer) const;
  const NodeSpec& node(std::uint32_t index) const { return parts_.nodes[index]; }

  // ---- what happened here: CommunicatorTable::Notice ----
  void called(std::uint64_t seq);  // by one of the seats, or the last of them
  void matched(std::uint64_t seq);
  void refused(std::uint64_t seq, const Failure& failure);
  void left(std::uint64_t seq, const Failure& failure);
  void revoked();
  // Offers what had to wait. Whether there is still something that does.
  bool offer_more(std::uint64_t now_ns);

  // ---- what another node says; an error is its fault ----
  Status take(std::uint32_t node, const net::FrameHeader& names, const net::Message& message,
              std::uint64_t now_ns);

  // Tells the others who has called, where they or we wait. When to ask again.
  std::uint64_t tend(std::uint64_t now_ns);
  // What came with the offers, for OfferedData.
  std::uint64_t turn_of(std::uint64_t seq) const;
  std::span<const std::byte> inline_data(std::uint64_t seq, std::uint32_t node) const;

  std::string_view node_name(Rank rank) const override { return node(node_at(rank)).name; }
  std::uint64_t node_id(Rank rank) const override { return node(node_at(rank)).peer; }
  bool has_called(Rank rank, std::uint64_t seq) const override;
  std::optional<std::uint64_t> waits_at(Rank rank) const override;
  bool anybody_waits() const override;
  pid_t pid(Rank rank) const override { return waits_.pid(rank); }

 private:
  struct Oldest {  // that somebody waits for
    std::uint64_t seq = kNoSeq, since_ns = 0;
  };

  std::uint32_t here() const { return communicator().world.here(); }
  std::uint32_t node_at(Rank rank) const { return communicator().world.place(rank).node; }
  bool is_open(std::uint64_t seq) const;  // neither ended nor agreed on
  void forget_ended();
  bool has_room() const;
  void tell_all(net::MessageKind kind, std::uint64_t seq,
                std::initializer_list<std::span<const std::byte>> parts);
  void tell_failure(net::MessageKind kind, std::uint64_t seq, const Failure& failure);
  // It was revoked here before the node has formed its part, which may not have heard of it.
  void tell_again(std::uint32_t node);
  void offer(const Arrival& arrival, std::uint64_t now_ns);
  // A node has offered more than is kept.
  void end_for(std::uint32_t node, Rank rank, const Error& bound);
  // The newest offer is `node`'s: does it agree with the others, and are they complete?
  void judge(NodeOffers::Entry& entry, std::uint32_t node, std::uint64_t now_ns);
  Oldest oldest_waiting() const;

  Status take_offer(std::uint32_t node, std::uint64_t seq, std::span<const std::byte> body,
                    std::uint64_t now_ns);
  // As this node's ranks are to hear it.
  Result<Failure> read_failure(std::uint32_t node, std::span<const std::byte> body) const;

  Parts parts_;
  NodeOffers offers_;
  std::deque<std::uint64_t> to_offer_;  // Matched, in order of seq
  NodeWaits waits_;
  bool is_told_ = false;  // another node has revoked it: all know
  // What was told last of who waits here.
  std::uint64_t told_seq_ = kNoSeq, told_called_ = 0, told_ns_ = 0;
};

}  // namespace arcomm
