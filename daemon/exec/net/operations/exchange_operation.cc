#include "daemon/exec/net/operations/exchange_operation.h"

#include <utility>

#include "daemon/plan/network/network_payload.h"

namespace arcomm {

Status ExchangeOperation::begin(const NetworkRequest& request) {
  seats_.begin(request.communicator, request.arrival, request.question, request.choice.partials);
  seq_ = request.arrival.seq;
  count_ = request.question.count;
  chunk_elements_ =
      payload_chunk(request.question, request.choice.partials, count_, group_.slot_bytes());
  chunks_ = tile_count(count_, chunk_elements_);
  computed_ = combined_ = 0;
  if (!seats_.is_input()) ARC_RETURN_IF_ERROR(group_.make_rooms());
  const std::uint64_t bytes = seats_.bytes_of_partial(count_);
  Status fault;
  group_.for_each_peer([&](std::uint32_t node) {
    Peer& peer = peers_[node];
    peer.sent = request.was_inline ? chunks_ : 0;
    peer.offered = request.offered.inline_data(request.communicator, seq_, node);
    if (!peer.offered.empty()) group_.notes().came_with_offer(peer.offered.size());
    if (!peer.offered.empty() && peer.offered.size() != bytes) {
      fault = error(ErrorCode::DataLoss, Reason::Corrupt, "node ", group_.spec(node).name,
                    " offered ", peer.offered.size(), " bytes of partial result, not ", bytes);
    }
  });
  return fault;
}

bool ExchangeOperation::advance() {
  bool moved = compute();
  moved |= send();
  moved |= combine();
  group_.give_credits();
  return moved;
}

bool ExchangeOperation::compute() {
  bool moved = false;
  while (computed_ < chunks_ && computed_ < combined_ + Loans::kAhead) {
    const ElementRange part = range(computed_);
    std::byte* const room = seats_.is_input() ? nullptr : group_.room(computed_);
    own_[computed_ % Loans::kAhead] = seats_.partial(part.first, part.last, room);
    ++computed_;
    moved = true;
    if (!seats_.is_input()) break;  // that was work
  }
  return moved;
}

bool ExchangeOperation::send() {
  bool moved = false;
  group_.for_each_peer([&](std::uint32_t node) {
    Peer& peer = peers_[node];
    while (peer.sent < computed_ && group_.send(node, seq_, own_[peer.sent % Loans::kAhead],
                                                group_.partials().of(node, peer.sent))) {
      ++peer.sent;
      moved = true;
    }
  });
  return moved;
}

bool ExchangeOperation::combine() {
  if (combined_ == computed_) return false;
  const ElementRange part = range(combined_);
  bool is_there = true;
  group_.for_each_peer([&](std::uint32_t node) {
    const Peer& peer = peers_[node];
    // In place the result takes the memory of what is sent.
    is_there &= peer.sent > combined_ && group_.partials().is_back(node, combined_);
    inputs_[node] = peer.offered.empty()
                        ? group_.arrived(node)
                        : peer.offered.data() + seats_.bytes_of_partial(part.first);
    is_there &= inputs_[node] != nullptr;
  });
  if (!is_there) return false;
  inputs_[group_.here()] = own_[combined_ % Loans::kAhead].data();
  seats_.finish(part.first, part.last, inputs_);
  group_.for_each_peer([&](std::uint32_t node) {
    if (!peers_[node].offered.empty()) return;
    group_.use_up(node);
    group_.notes().arrived(seats_.bytes_of_partial(part.size()));
  });
  ++combined_;
  return true;
}

}  // namespace arcomm
