#include "daemon/exec/gpu/network/node_places.h"

#include <algorithm>

namespace arcomm {
namespace {

bool is_to_begin(const Arrival& arrival) {
  return arrival.state == Arrival::State::Matched || arrival.state == Arrival::State::Agreed ||
         arrival.state == Arrival::State::Running;
}

}  // namespace

NodePlaces::NodePlaces(const Parts& parts)
    : place_(parts.place),
      room_(parts.room),
      links_(parts.links),
      is_in_queues_(parts.is_in_queues),
      nodes_(parts.spec.nodes),
      here_(parts.spec.here),
      promised_(parts.spec.nodes.size()) {
  names_.kind = net::FrameKind::Message;
  names_.communicator = parts.spec.communicator;
  names_.epoch = static_cast<std::uint32_t>(parts.spec.epoch);
}

void NodePlaces::tell(std::uint32_t node, net::MessageKind kind, std::uint64_t seq) {
  names_.seq = seq;
  links_.send(nodes_[node].peer, kind, names_, {});
}

void NodePlaces::tell_all(net::MessageKind kind, std::uint64_t seq) {
  for (std::uint32_t node = 0; node < nodes_.size(); ++node) {
    if (node != here_) tell(node, kind, seq);
  }
}

void NodePlaces::promise(std::uint64_t to) {
  promised_[here_] = std::max(promised_[here_], to);
}

bool NodePlaces::offer(std::uint64_t seq, std::uint32_t blocks, bool is_oldest) {
  offered_to_ = std::max(offered_to_, seq + 1);
  // An operation that waits for a place gets it before those behind it.
  if (awaited_ != 0 || (promised_[here_] < seq && !is_oldest)) return false;
  if (!room_.enter_ahead(place_, blocks)) return false;
  place_.is_promised |= blocks != 0;
  promise(seq + 1);
  return true;
}

bool NodePlaces::enter(std::uint64_t seq, std::uint32_t blocks) {
  if (awaited_ != 0) return false;
  if (place_.is_promised && promised_[here_] > seq) return true;
  if (!room_.enter(place_, blocks)) return false;
  place_.is_promised = true;
  promise(seq + 1);
  tell_all(net::MessageKind::Placed, promised_[here_]);
  return true;
}

bool NodePlaces::may_begin(std::uint64_t seq) const {
  return std::ranges::all_of(promised_, [&](std::uint64_t promised) { return promised > seq; });
}

void NodePlaces::leave() {
  place_.is_promised = false;
  // A kernel that waits for the agreement leaves with its own end.
  if (!is_in_queues_()) room_.leave(place_);
}

void NodePlaces::ended(std::uint64_t seq) {
  begun_to_ = std::max(begun_to_, seq + 1);
  is_running_ = false;
  if (promised_[here_] <= begun_to_) leave();
}

void NodePlaces::end() {
  awaited_ = 0;
  is_running_ = false;
  room_.give_up_turn(place_);
  leave();
}

void NodePlaces::give_up() {
  room_.give_up_turn(place_);
  leave();
}

bool NodePlaces::is_forgotten(const ArrivalBoard& board) const {
  if (!place_.is_promised) return false;
  bool is_expected = false;
  board.for_each_open([&](const Arrival& arrival) {
    is_expected |= arrival.seq < promised_[here_] && is_to_begin(arrival);
  });
  return !is_expected;
}

void NodePlaces::recall() {
  for (std::uint32_t node = 0; node < nodes_.size(); ++node)
    awaited_ |= node == here_ ? 0 : bit(node);
  tell_all(net::MessageKind::Recall, begun_to_);
}

void NodePlaces::all_have_answered() {
  promised_[here_] = std::min(promised_[here_], std::max(kept_to_, begun_to_));
  if (promised_[here_] > begun_to_) {
    tell_all(net::MessageKind::Placed, promised_[here_]);
  } else if (!is_running_) {
    leave();
  }
}

void NodePlaces::offer_came(std::uint32_t node, std::uint64_t seq, bool is_placed) {
  if (is_placed) promised_[node] = std::max(promised_[node], seq + 1);
}

Status NodePlaces::receive(std::uint32_t node, net::MessageKind kind, std::uint64_t seq) {
  const auto fault = [&](const auto&... what) {
    return error(ErrorCode::DataLoss, Reason::Corrupt, "node ", nodes_[node].name, ": ", what...);
  };
  if (kind == net::MessageKind::Recall) {
    // What is before `seq` it has begun itself.
    promised_[node] = std::min(promised_[node], std::max(begun_to_, seq));
    tell(node, net::MessageKind::Recalled, begun_to_);
    return {};
  }
  if (kind == net::MessageKind::Placed) {
    promised_[node] = std::max(promised_[node], seq);
    return {};
  }
  if ((awaited_ & bit(node)) == 0) return fault("it gives back a promise that nobody asked for");
  if (seq > offered_to_)
    return fault("it has begun what is before seq ", seq, ", and was offered what is before ",
                 offered_to_);
  kept_to_ = std::max(kept_to_, seq);
  awaited_ &= ~bit(node);
  if (awaited_ == 0) all_have_answered();
  return {};
}

}  // namespace arcomm
