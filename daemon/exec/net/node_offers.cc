#include "daemon/exec/net/node_offers.h"

#include <algorithm>
#include <utility>

namespace arcomm {
namespace {

constexpr std::size_t kMostSpareEntries = 16;

}  // namespace

const NodeOffers::Entry* NodeOffers::find(std::uint64_t seq) const {
  for (const auto& entry : entries_) {
    if (entry->seq == seq) return entry.get();
  }
  return nullptr;
}

NodeOffers::Entry* NodeOffers::add(std::uint32_t node, std::uint64_t seq,
                                   const net::OfferBody& body, std::span<const std::byte> data,
                                   std::uint64_t now_ns) {
  OfNode& its = of_node_[node];
  if (its.offers == kMostOfNode || its.bytes + data.size() > kMostBytesOfNode) return nullptr;
  Entry* entry = find(seq);
  if (entry == nullptr) {
    if (spare_.empty()) {
      entries_.push_back(std::make_unique<Entry>());
      entries_.back()->by_node.resize(nodes_);
    } else {
      entries_.push_back(std::move(spare_.back()));
      spare_.pop_back();
    }
    entry = entries_.back().get();
    entry->seq = seq;
    entry->since_ns = now_ns;
    entry->offered = 0;
    entry->deadline_ns = kNoDeadline;
    entry->is_agreed = false;
  }
  entry->offered |= std::uint64_t{1} << node;
  Offer& offer = entry->by_node[node];
  offer.body = body;
  offer.data.assign(data.begin(), data.end());
  ++its.offers;
  its.bytes += data.size();
  its.offered_to = std::max(its.offered_to, seq + 1);
  return entry;
}

void NodeOffers::give_back(std::size_t index) {
  std::unique_ptr<Entry> entry = std::move(entries_[index]);
  entries_[index] = std::move(entries_.back());
  entries_.pop_back();
  for (std::uint32_t node = 0; node < nodes_; ++node) {
    if (!entry->has(node)) continue;
    --of_node_[node].offers;
    of_node_[node].bytes -= entry->by_node[node].data.size();
  }
  if (spare_.size() < kMostSpareEntries) spare_.push_back(std::move(entry));
}

const NodeOffers::Entry* NodeOffers::oldest_open() const {
  const Entry* oldest = nullptr;
  for (const auto& entry : entries_) {
    if (!entry->is_agreed && (oldest == nullptr || entry->seq < oldest->seq)) oldest = entry.get();
  }
  return oldest;
}

Signature NodeOffers::signature_of(const net::OfferBody& body) {
  return {net::spec_of(body), body.total_count, body.first_element};
}

}  // namespace arcomm
