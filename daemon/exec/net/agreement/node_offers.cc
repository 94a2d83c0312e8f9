#include "daemon/exec/net/agreement/node_offers.h"

#include <algorithm>
#include <utility>

namespace arcomm {

const NodeOffers::Entry* NodeOffers::find(std::uint64_t seq) const {
  for (const auto& entry : entries_) {
    if (entry->seq == seq) return entry.get();
  }
  return nullptr;
}

Result<NodeOffers::Entry*> NodeOffers::add(std::uint32_t node, std::uint64_t seq,
                                           const net::OfferBody& body,
                                           std::span<const std::byte> data, std::uint64_t now_ns) {
  const auto too_many = [](const auto&... what) {
    return error(ErrorCode::ResourceExhausted, Reason::Quota, "it has offered ", what...,
                 " for operations that have not ended here");
  };
  OfNode& its = of_node_[node];
  if (its.offers == kMostOfNode) return too_many(kMostOfNode, " times");
  if (its.bytes + data.size() > kMostBytesOfNode) return too_many(its.bytes, " bytes");
  Entry* entry = find(seq);
  const bool is_new = entry == nullptr;
  if (is_new && spare_.empty()) {
    spare_.push_back(std::make_unique<Entry>());
    spare_.back()->by_node.resize(nodes_);
    bytes_ += bytes_of(*spare_.back());
  }
  std::vector<std::byte>& buffer = (is_new ? spare_.back().get() : entry)->by_node[node].data;
  const std::uint64_t growth =
      data.size() > buffer.capacity() ? data.size() - buffer.capacity() : 0;
  ARC_RETURN_IF_ERROR(account_.hold(bytes_ + growth));
  bytes_ -= buffer.capacity();
  buffer.reserve(data.size());
  buffer.assign(data.begin(), data.end());
  bytes_ += buffer.capacity();
  if (is_new) {
    entries_.push_back(std::move(spare_.back()));
    spare_.pop_back();
    entry = entries_.back().get();
    entry->seq = seq;
    entry->since_ns = now_ns;
    entry->offered = 0;
    entry->deadline_ns = kNoDeadline;
    entry->is_agreed = false;
  }
  entry->offered |= std::uint64_t{1} << node;
  entry->by_node[node].body = body;
  ++its.offers;
  its.bytes += data.size();
  its.offered_to = std::max(its.offered_to, seq + 1);
  return entry;
}

void NodeOffers::give_back(std::size_t index) {
  const Entry& entry = *entries_[index];
  for (std::uint32_t node = 0; node < nodes_; ++node) {
    if (!entry.has(node)) continue;
    --of_node_[node].offers;
    of_node_[node].bytes -= entry.by_node[node].data.size();
  }
  spare_.push_back(std::move(entries_[index]));
  entries_[index] = std::move(entries_.back());
  entries_.pop_back();
  shed(kMostSpare);
}

void NodeOffers::shed(std::size_t most) {
  if (spare_.size() <= most) return;
  for (; spare_.size() > most; spare_.pop_back()) bytes_ -= bytes_of(*spare_.back());
  (void)account_.hold(bytes_);  // less is always well
}

std::uint64_t NodeOffers::bytes_of(const Entry& entry) const {
  std::uint64_t bytes = sizeof entry + nodes_ * sizeof(Offer);
  for (const Offer& offer : entry.by_node) bytes += offer.data.capacity();
  return bytes;
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
