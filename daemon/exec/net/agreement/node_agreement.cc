#include "daemon/exec/net/agreement/node_agreement.h"

#include <algorithm>
#include <cinttypes>
#include <string>
#include <utility>

#include "daemon/comm/mismatch.h"
#include "daemon/exec/net/agreement/node_fault.h"
#include "kernels/codec/format.h"
#include "proto/text.h"

namespace arcomm {
namespace {

template <typename T>
std::span<const std::byte> bytes_of(const T& value) {
  return std::as_bytes(std::span(&value, 1));
}

net::FailureBody body_of(const Failure& failure) {
  // Unknown is no error that a peer could have decided on.
  const ErrorCode code = failure.code == ErrorCode::Unknown ? ErrorCode::Internal : failure.code;
  net::FailureBody body{.code = static_cast<std::int32_t>(code),
                        .reason = static_cast<std::int32_t>(failure.reason),
                        .culprit = failure.culprit};
  const std::string text = safe_text(failure.message(), body.text.size() - 1);
  text.copy(body.text.data(), body.text.size() - 1);
  return body;
}

}  // namespace

NodeAgreement::NodeAgreement(Parts parts)
    : parts_(std::move(parts)),
      offers_(static_cast<std::uint32_t>(parts_.nodes.size()), parts_.memory, parts_.uid),
      waits_(parts_.communicator.world, parts_.nodes) {}

NodeAgreement::~NodeAgreement() {
  parts_.executor.forget(communicator());
  parts_.on_end(number());
}

std::optional<std::uint32_t> NodeAgreement::node_of(PeerId peer) const {
  for (std::uint32_t index = 0; index < parts_.nodes.size(); ++index) {
    if (parts_.nodes[index].peer == peer) return index;
  }
  return std::nullopt;
}

bool NodeAgreement::is_open(std::uint64_t seq) const {
  const Communicator& its = communicator();
  if (!its.ready() || seq >= its.ends_at || its.board.is_over(seq)) return false;
  const Arrival* arrival = its.board.find(seq);
  return arrival == nullptr || arrival->state == Arrival::State::Gathering ||
         arrival->state == Arrival::State::Matched;
}

void NodeAgreement::forget_ended() {
  const Communicator& its = communicator();
  offers_.forget([&](std::uint64_t seq) {
    // What runs still reads what came with its offers.
    if (!its.ready()) return its.board.find(seq) == nullptr;
    return its.board.is_over(seq) || seq >= its.ends_at;
  });
}

bool NodeAgreement::has_room() const {
  return std::ranges::all_of(
      parts_.nodes, [this](const NodeSpec& node) { return parts_.links.has_room(node.peer); });
}

void NodeAgreement::tell_all(net::MessageKind kind, std::uint64_t seq,
                             std::initializer_list<std::span<const std::byte>> parts) {
  const net::FrameHeader names{.communicator = number(), .epoch = epoch(), .seq = seq};
  for (std::uint32_t index = 0; index < parts_.nodes.size(); ++index) {
    if (index != here()) parts_.links.send(parts_.nodes[index].peer, kind, names, parts);
  }
}

void NodeAgreement::tell_failure(net::MessageKind kind, std::uint64_t seq, const Failure& failure) {
  const net::FailureBody body = body_of(failure);
  tell_all(kind, seq, {bytes_of(body)});
}

void NodeAgreement::called(std::uint64_t seq) {
  const NodeOffers::Entry* entry = offers_.find(seq);
  if (entry != nullptr && entry->deadline_ns != NodeOffers::kNoDeadline)
    parts_.table.limit(communicator(), seq, entry->deadline_ns);
}

void NodeAgreement::matched(std::uint64_t seq) {
  called(seq);
  to_offer_.push_back(seq);
}

bool NodeAgreement::offer_more(std::uint64_t now_ns) {
  while (!to_offer_.empty()) {
    const ArrivalBoard& board = communicator().board;
    const std::uint64_t seq = to_offer_.front();
    const Arrival* arrival = board.find(seq);
    if (arrival == nullptr || arrival->state != Arrival::State::Matched) {
      to_offer_.pop_front();  // it has ended meanwhile
      continue;
    }
    if (seq - board.oldest_open()->seq >= kMostAhead || !has_room()) return true;
    to_offer_.pop_front();
    offer(*arrival, now_ns);
  }
  return false;
}

void NodeAgreement::offer(const Arrival& arrival, std::uint64_t now_ns) {
  forget_ended();
  const Signature& signature = arrival.signature;
  net::OfferBody body = net::offer_of(signature);
  body.total_count = signature.total_count;
  body.first_element = signature.first_element;
  body.remaining_ns =
      arrival.deadline_ns > now_ns ? std::min(arrival.deadline_ns - now_ns, net::kMostWaitNs) : 0;
  body.first_rank = arrival.first_rank;
  body.identity = arrival.identity;
  // Where its user has little room left, data go through staging and not with offers: other nodes'
  // offers must still find room.
  std::span<const std::byte> data;
  constexpr std::uint64_t kMostGrowth = 2;  // of elements that travel as wider ones
  std::uint64_t most_bytes = kMostGrowth * signature.send_bytes();
  if (signature.codec != Codec::None)
    most_bytes = std::max(most_bytes, coded_bytes(signature.codec, signature.send_count));
  if (offers_.has_room(std::min<std::uint64_t>(most_bytes, net::kMostInlineBytes)))
    data = parts_.executor.inline_data(communicator(), arrival);
  body.inline_bytes = static_cast<std::uint32_t>(data.size());
  const NetworkExecutor::Offering offering = parts_.executor.offering(communicator(), arrival);
  body.turn = offering.turn;
  body.is_placed = offering.is_placed ? 1 : 0;
  const std::uint64_t seq = arrival.seq;
  tell_all(net::MessageKind::Offer, seq, {bytes_of(body), data});
  const Result<NodeOffers::Entry*> entry = offers_.add(here(), seq, body, data, now_ns);
  if (!entry) return end_for(here(), arrival.first_rank, entry.error());
  judge(**entry, here(), now_ns);
  if (!communicator().ready()) return;
  const Arrival* const offered = communicator().board.find(seq);
  if (offered != nullptr &&
      (offered->state == Arrival::State::Matched || offered->state == Arrival::State::Agreed))
    parts_.executor.offered(communicator(), *offered);
}

void NodeAgreement::end_for(std::uint32_t node, Rank rank, const Error& bound) {
  parts_.table.revoke(communicator(),
                      make_failure(bound.code, bound.reason, rank, "node %s: %s",
                                   parts_.nodes[node].name.c_str(), bound.message.c_str()));
}

void NodeAgreement::judge(NodeOffers::Entry& entry, std::uint32_t node, std::uint64_t now_ns) {
  // The others are alike.
  std::uint32_t other = 0;
  while (other < parts_.nodes.size() && (other == node || !entry.has(other))) ++other;
  if (other < parts_.nodes.size()) {
    const net::OfferBody& late = entry.by_node[node].body;
    const net::OfferBody& first = entry.by_node[other].body;
    const NamedRank late_rank(late.first_rank, parts_.nodes[node].name);
    const NamedRank first_rank(first.first_rank, parts_.nodes[other].name);
    const Signature lates = NodeOffers::signature_of(late);
    const Signature firsts = NodeOffers::signature_of(first);
    std::optional<Failure> failure;
    if (lates != firsts) {
      failure = mismatch_of(late_rank, lates, first_rank, firsts);
    } else if (late.identity != first.identity) {
      failure = reordered(late_rank, late.identity, first_rank, first.identity);
    }
    if (failure) {
      // A node that has offered learns it from the others' offers; one that has not never would.
      if (!entry.has(here())) tell_failure(net::MessageKind::Refused, entry.seq, *failure);
      return parts_.table.refuse_all(communicator(), entry.seq, *failure, now_ns);
    }
  }
  if (!offers_.is_complete(entry)) return;
  entry.is_agreed = true;
  parts_.table.agree(communicator(), entry.seq, now_ns);
}

void NodeAgreement::refused(std::uint64_t seq, const Failure& failure) {
  if (has_room()) return tell_failure(net::MessageKind::Refused, seq, failure);
  // Refusals cost their sender nothing: a rank that makes more than peers can take would fill the
  // links.
  parts_.table.revoke(communicator(),
                      make_failure(ErrorCode::ResourceExhausted, Reason::Quota, failure.culprit,
                                   "operations are refused faster than other nodes hear of it"));
}

void NodeAgreement::left(std::uint64_t seq, const Failure& failure) {
  tell_failure(net::MessageKind::Left, seq, failure);
}

void NodeAgreement::revoked() {
  to_offer_.clear();
  forget_ended();
  if (!is_told_)
    tell_failure(net::MessageKind::Revoked, communicator().revoked_at, communicator().revoked);
}

// The link may have been made anew after this node's part had ended with the old one.
void NodeAgreement::tell_again(std::uint32_t node) {
  const Communicator& its = communicator();
  if (its.ready() || !parts_.links.has_room(parts_.nodes[node].peer)) return;
  const net::FailureBody body = body_of(its.revoked);
  const net::FrameHeader names{.communicator = number(), .epoch = epoch(), .seq = its.revoked_at};
  parts_.links.send(parts_.nodes[node].peer, net::MessageKind::Revoked, names, {bytes_of(body)});
}

Result<Failure> NodeAgreement::read_failure(std::uint32_t node,
                                            std::span<const std::byte> bytes) const {
  const auto body = net::body_of<net::FailureBody>(bytes);
  if (body.culprit >= communicator().ranks())
    return fault_of(parts_.nodes[node], "culprit ", body.culprit, " of ", communicator().ranks(),
                    " ranks");
  Failure failure{.code = static_cast<ErrorCode>(body.code),
                  .reason = static_cast<Reason>(body.reason),
                  .culprit = body.culprit};
  const std::string_view text = body.text.data();
  const std::string& name = parts_.nodes[node].name;
  const bool is_named = text.find(name) != std::string_view::npos;
  failure.set_text(is_named ? std::string(text) : name + ": " + std::string(text));
  return failure;
}

Status NodeAgreement::take(std::uint32_t node, const net::FrameHeader& names,
                           const net::Message& message, std::uint64_t now_ns) {
  switch (message.kind) {
    case net::MessageKind::Offer:
      return take_offer(node, names.seq, message.body, now_ns);
    case net::MessageKind::Waiting:
      if (Status taken = waits_.take(node, names.seq, message.body, now_ns); !taken) return taken;
      if (anybody_waits()) parts_.table.note_waiting_elsewhere(communicator());
      return {};
    case net::MessageKind::Window:
    case net::MessageKind::Ready:
    case net::MessageKind::Placed:
    case net::MessageKind::Recall:
    case net::MessageKind::Recalled:
      if (!communicator().ready()) {
        if (message.kind == net::MessageKind::Window) tell_again(node);
        return {};
      }
      return parts_.executor.receive(communicator(), node, message.kind, names, message.body);
    case net::MessageKind::Refused:
    case net::MessageKind::Revoked:
    case net::MessageKind::Left:
      break;
  }
  const Result<Failure> failure = read_failure(node, message.body);
  if (!failure) return failure.error();
  if (message.kind == net::MessageKind::Revoked) {
    is_told_ = true;
    parts_.table.revoke_at(communicator(), names.seq, *failure);
  } else if (message.kind == net::MessageKind::Refused) {
    // Where one node does not run it and others do, chunks would be taken for those of the next.
    if (offers_.has(node, names.seq))
      return fault_of(parts_.nodes[node], "seq ", names.seq, " is refused, which it had offered");
    if (names.seq >= communicator().board.base() && !communicator().board.in_window(names.seq))
      return fault_of(parts_.nodes[node], "seq ", names.seq, " is refused, and ",
                      communicator().board.base(), " is the oldest here");
    parts_.table.refuse_all(communicator(), names.seq, *failure, now_ns);
    forget_ended();
  } else {
    const Rank who = failure->culprit;
    // Also one of ours: a node whose end is earlier says so.
    if (who == kNoRank) return fault_of(parts_.nodes[node], "nobody has left");
    if (names.seq < offers_.offered_to(node))
      return fault_of(parts_.nodes[node], "rank ", who, " has left before seq ", names.seq,
                      ", which it had offered");
    const std::uint64_t end = parts_.table.end_by(communicator(), names.seq, who);
    if (communicator().ready() && end < names.seq)
      tell_failure(net::MessageKind::Left, end, communicator().ended);
    forget_ended();
  }
  return {};
}

Status NodeAgreement::take_offer(std::uint32_t node, std::uint64_t seq,
                                 std::span<const std::byte> bytes, std::uint64_t now_ns) {
  const auto body = net::body_of<net::OfferBody>(bytes);
  Communicator& its = communicator();
  if (body.first_rank >= its.ranks() || node_at(body.first_rank) != node)
    return fault_of(parts_.nodes[node], "it offers for rank ", body.first_rank);
  if (!its.ready() || seq >= its.ends_at || its.board.is_over(seq)) return {};  // too late
  if (!its.board.in_window(seq))
    return fault_of(parts_.nodes[node], "it offers seq ", seq, ", and ", its.board.base(),
                    " is the oldest here");
  if (offers_.has(node, seq)) return fault_of(parts_.nodes[node], "it offers seq ", seq, " twice");
  forget_ended();
  const Result<NodeOffers::Entry*> added =
      offers_.add(node, seq, body, bytes.subspan(sizeof body), now_ns);
  if (!added) {
    end_for(node, body.first_rank, added.error());
    return {};
  }
  NodeOffers::Entry& entry = **added;
  parts_.executor.offer_came(its, node, seq, body);
  if (body.remaining_ns != 0) {  // else its deadline has passed, and it says so itself
    entry.deadline_ns = std::min(entry.deadline_ns, now_ns + body.remaining_ns + kGraceNs);
    parts_.table.limit(its, seq, entry.deadline_ns);
  }
  judge(entry, node, now_ns);
  return {};
}

bool NodeAgreement::has_called(Rank rank, std::uint64_t seq) const {
  // Nodes offer in order.
  return seq < offers_.offered_to(node_at(rank)) || waits_.has_called(rank, seq);
}

std::optional<std::uint64_t> NodeAgreement::waits_at(Rank rank) const {
  const std::optional<std::uint64_t> seq = waits_.waits_at(rank);
  return seq && is_open(*seq) ? seq : std::nullopt;
}

bool NodeAgreement::anybody_waits() const {
  return std::ranges::any_of(waits_.by_node(), [this](const NodeWaits::OfNode& waits) {
    return waits.seq && waits.called != 0 && is_open(*waits.seq);
  });
}

NodeAgreement::Oldest NodeAgreement::oldest_waiting() const {
  Oldest oldest;
  const auto consider = [&](std::uint64_t seq, std::uint64_t since_ns) {
    if (seq < oldest.seq) {
      oldest = {seq, since_ns};
    } else if (seq == oldest.seq) {
      oldest.since_ns = std::min(oldest.since_ns, since_ns);
    }
  };
  const Arrival* first = nullptr;
  communicator().board.for_each_open([&](const Arrival& arrival) {
    const bool waits = arrival.seen != 0 && (arrival.state == Arrival::State::Gathering ||
                                             arrival.state == Arrival::State::Matched);
    if (first == nullptr && waits) first = &arrival;
  });
  if (first != nullptr) consider(first->seq, first->first_ns);
  if (const NodeOffers::Entry* entry = offers_.oldest_open(); entry != nullptr)
    consider(entry->seq, entry->since_ns);
  // The node that tells of it has waited long enough.
  for (const NodeWaits::OfNode& waits : waits_.by_node()) {
    if (waits.seq && is_open(*waits.seq))
      consider(*waits.seq, waits.heard_ns > kWaitingNs ? waits.heard_ns - kWaitingNs : 0);
  }
  return oldest;
}

std::uint64_t NodeAgreement::tend(std::uint64_t now_ns) {
  const Communicator& its = communicator();
  if (!its.ready()) return kNever;
  if (!offers_.empty()) forget_ended();  // so that an idle node keeps little
  const Oldest oldest = oldest_waiting();
  if (oldest.seq == kNoSeq) return kNever;
  const std::uint64_t due = std::max(oldest.since_ns, told_ns_) + kWaitingNs;
  const Arrival* arrival = its.board.find(oldest.seq);
  const std::uint64_t called = arrival == nullptr ? 0 : arrival->seen;
  if (told_seq_ == oldest.seq && told_called_ == called) return kNever;
  if (now_ns < due) return due;
  if (!has_room()) return now_ns + kWaitingNs;
  told_seq_ = oldest.seq;
  told_called_ = called;
  told_ns_ = now_ns;
  const net::WaitingBody body{
      .called = called,
      .since_ns = std::min(now_ns - std::min(now_ns, oldest.since_ns), net::kMostWaitNs),
      .seats = static_cast<std::uint32_t>(its.seats.size())};
  std::vector<std::int32_t> pids;
  for (const Seat& seat : its.seats) pids.push_back(static_cast<std::int32_t>(seat.pid));
  tell_all(net::MessageKind::Waiting, oldest.seq, {bytes_of(body), std::as_bytes(std::span(pids))});
  return kNever;
}

std::uint64_t NodeAgreement::turn_of(std::uint64_t seq) const {
  const NodeOffers::Entry* entry = offers_.find(seq);
  std::uint64_t highest = 0;
  for (std::uint32_t node = 0; entry != nullptr && node < entry->by_node.size(); ++node) {
    if (entry->has(node)) highest = std::max(highest, entry->by_node[node].body.turn);
  }
  return highest;
}

std::span<const std::byte> NodeAgreement::inline_data(std::uint64_t seq, std::uint32_t node) const {
  const NodeOffers::Entry* entry = offers_.find(seq);
  if (entry == nullptr || node >= entry->by_node.size() || !entry->has(node)) return {};
  return entry->by_node[node].data;
}

}  // namespace arcomm
