// What each node has offered for the operations of one communicator that have not ended here: what
// its ranks ask for, and the data that came along, in buffers of their own. Bounded, for each node
// and, over all communicators, for each user. Thread: the worker's.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "daemon/exec/net/agreement/offer_memory.h"
#include "daemon/plan/operation.h"
#include "proto/net/message.h"

namespace arcomm {

class NodeOffers {
 public:
  // Of one node. It offers 8 ahead of its oldest open operation, but those that others refused may
  // have ended there already, and not here.
  static constexpr std::size_t kMostOfNode = 256;
  static constexpr std::size_t kMostBytesOfNode = std::size_t{2} << 20;

  static constexpr std::uint64_t kNoDeadline = ~std::uint64_t{0};

  struct Offer {
    net::OfferBody body;
    std::vector<std::byte> data;
  };
  // One operation.
  struct Entry {
    std::uint64_t seq = 0;
    std::uint64_t since_ns = 0;               // the first offer came
    std::uint64_t offered = 0;                // bit n: node n has
    std::uint64_t deadline_ns = kNoDeadline;  // of the other nodes, the earliest, on this clock
    bool is_agreed = false;
    std::vector<Offer> by_node;
    bool has(std::uint32_t node) const { return (offered >> node & 1) != 0; }
  };

  NodeOffers(std::uint32_t nodes, OfferMemory& memory, uid_t uid)
      : nodes_(nodes), of_node_(nodes), account_(memory, uid) {}

  // The entry, now with this offer. ResourceExhausted, naming the bound: the node has too many, or
  // the user has. Precondition: !has(node, seq).
  Result<Entry*> add(std::uint32_t node, std::uint64_t seq, const net::OfferBody& body,
                     std::span<const std::byte> data, std::uint64_t now_ns);
  // Would there be room for so many bytes with an offer of each node?
  bool has_room(std::uint64_t bytes) const { return account_.may_hold(bytes_ + nodes_ * bytes); }
  bool has(std::uint32_t node, std::uint64_t seq) const {
    const Entry* entry = find(seq);
    return entry != nullptr && entry->has(node);
  }
  const Entry* find(std::uint64_t seq) const;
  Entry* find(std::uint64_t seq) {
    return const_cast<Entry*>(static_cast<const NodeOffers*>(this)->find(seq));
  }
  bool is_complete(const Entry& entry) const {
    return entry.offered == (nodes_ == 64 ? ~std::uint64_t{0} : (std::uint64_t{1} << nodes_) - 1);
  }
  // Up to which seq, not included, a node has ever offered.
  std::uint64_t offered_to(std::uint32_t node) const { return of_node_[node].offered_to; }
  // The oldest that the nodes have not agreed on; null: none.
  const Entry* oldest_open() const;
  bool empty() const { return entries_.empty(); }

  // Lets go of those for which `is_over(seq)`.
  template <typename IsOver>
  void forget(IsOver is_over) {
    for (std::size_t i = 0; i < entries_.size();) {
      if (is_over(entries_[i]->seq)) {
        give_back(i);
      } else {
        ++i;
      }
    }
    if (entries_.empty()) shed(kMostIdle);
  }

  static Signature signature_of(const net::OfferBody& body);

 private:
  struct OfNode {
    std::size_t offers = 0, bytes = 0;
    std::uint64_t offered_to = 0;
  };
  // Entries without an operation, whose buffers are kept: while others run, and when none does.
  static constexpr std::size_t kMostSpare = 8;
  static constexpr std::size_t kMostIdle = 2;

  void give_back(std::size_t index);
  void shed(std::size_t most);  // spare entries, but for so many
  std::uint64_t bytes_of(const Entry& entry) const;

  const std::uint32_t nodes_;
  std::vector<OfNode> of_node_;
  std::vector<std::unique_ptr<Entry>> entries_;  // in no order: there are few
  std::vector<std::unique_ptr<Entry>> spare_;
  std::uint64_t bytes_ = 0;  // of all entries and their buffers
  OfferMemory::Account account_;
};

}  // namespace arcomm
