#include "daemon/exec/net/node_group.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "daemon/plan/network/host_window.h"

namespace arcomm {
namespace {

Error wrong_window(const NodeSpec& node, const char* field, std::uint64_t value,
                   std::uint64_t expected) {
  return error(ErrorCode::DataLoss, Reason::Corrupt, "node ", node.name, " told a window whose ",
               field, " is ", value, ", not ", expected);
}

template <typename Body>
Result<Body> read(std::span<const std::byte> bytes) {
  if (bytes.size() != sizeof(Body)) {
    return error(ErrorCode::DataLoss, Reason::Corrupt, "a message has ", bytes.size(),
                 " bytes of body, not ", sizeof(Body));
  }
  Body body;
  std::memcpy(&body, bytes.data(), sizeof body);
  return body;
}

}  // namespace

Result<std::unique_ptr<NodeGroup>> NodeGroup::create(const CommunicatorSpec& spec, bool has_rooms,
                                                     StagingPool& pool, Links& links) {
  std::unique_ptr<NodeGroup> group(new NodeGroup(spec, pool, links));
  ARC_RETURN_IF_ERROR(group->open(has_rooms));
  return group;
}

NodeGroup::NodeGroup(const CommunicatorSpec& spec, StagingPool& pool, Links& links)
    : pool_(pool),
      links_(links),
      uid_(spec.uid),
      here_(spec.here),
      policy_(spec.policy),
      owner_{spec.communicator, static_cast<std::uint32_t>(spec.epoch)},
      peers_(spec.nodes.size()),
      slot_bytes_(slot_bytes_among(nodes())),
      partials_(nodes()),
      results_(nodes()) {
  for (std::uint32_t node = 0; node < nodes(); ++node) peers_[node].spec = spec.nodes[node];
}

Status NodeGroup::open(bool has_rooms) {
  if (links_.regions() == nullptr) {
    return error(ErrorCode::Internal, Reason::Bug, "a communicator of ", nodes(),
                 " nodes was to be formed without a link");
  }
  const std::uint64_t peers = nodes() - 1;
  const std::uint64_t room_bytes = has_rooms ? std::uint64_t{kRooms + 1} * slot_bytes_ : 0;
  for (slots_ = kMostSlots;; slots_ /= 2) {
    auto taken = pool_.take(uid_, peers * slots_ * slot_bytes_ + room_bytes);
    if (!taken && slots_ == 1) return std::move(taken).error();
    if (!taken) continue;
    memory_ = *taken;
    break;
  }
  const std::uint64_t window_bytes = std::uint64_t{slots_} * slot_bytes_;
  std::byte* at = memory_.data();
  for_each_peer([&](std::uint32_t node) {
    peers_[node].slots = at;
    at += window_bytes;
  });
  rooms_ = {at, room_bytes};
  const std::size_t signals = first_arrival(nodes());
  signals_ = std::make_unique<net::SignalWord[]>(signals);
  auto region =
      links_.regions()->add(memory_.first(peers * window_bytes), {signals_.get(), signals}, owner_);
  if (!region) return std::move(region).error();
  region_ = *region;
  for_each_peer([&](std::uint32_t node) {
    const Peer& peer = peers_[node];
    const net::WindowBody window{
        .region = region_,
        .first_byte = static_cast<std::uint64_t>(peer.slots - memory_.data()),
        .first_signal = first_arrival(node),
        .slots = slots_,
        .slot_bytes = slot_bytes_,
        .first_credit = node};
    links_.send(peer.spec.peer, net::MessageKind::Window, header(net::FrameKind::Message, 0),
                {std::as_bytes(std::span(&window, 1))});
  });
  return {};
}

NodeGroup::~NodeGroup() {
  for (const std::span<std::byte> part : {memory_, own_rooms_, result_rooms_}) {
    if (!part.empty()) pool_.give_back(uid_, part);
  }
}

Status NodeGroup::make_rooms() {
  if (has_rooms()) return {};
  auto taken = pool_.take(uid_, std::uint64_t{kRooms + 1} * slot_bytes_);
  if (!taken) return std::move(taken).error();
  rooms_ = own_rooms_ = *taken;
  return {};
}

Status NodeGroup::make_result_rooms() {
  if (!result_rooms_.empty()) return {};
  auto taken = pool_.take(uid_, Loans::kAhead * slot_bytes_);
  if (!taken) return std::move(taken).error();
  result_rooms_ = *taken;
  return {};
}

bool NodeGroup::is_let_go() {
  const bool removed =
      region_ == 0 || links_.regions() == nullptr || links_.regions()->remove(region_);
  return removed && are_back();
}

net::FrameHeader NodeGroup::header(net::FrameKind kind, std::uint64_t seq) const {
  net::FrameHeader header;
  header.kind = kind;
  header.communicator = owner_.communicator;
  header.epoch = owner_.epoch;
  header.seq = seq;
  return header;
}

Status NodeGroup::receive(std::uint32_t node, net::MessageKind kind, const net::FrameHeader& names,
                          std::span<const std::byte> body) {
  Peer& peer = peers_[node];
  if (kind == net::MessageKind::Window) {
    auto window = read<net::WindowBody>(body);
    return window ? take_window(peer, *window) : Status(std::move(window).error());
  }
  if (kind != net::MessageKind::Ready) {
    return error(ErrorCode::DataLoss, Reason::Corrupt, "node ", peer.spec.name,
                 " sent a message of kind ", static_cast<unsigned>(kind), " for staging");
  }
  auto ready = read<net::ReadyBody>(body);
  if (!ready) return std::move(ready).error();
  peer.ready = *ready;
  peer.ready_seq = names.seq;
  return {};
}

Status NodeGroup::take_window(Peer& peer, const net::WindowBody& window) const {
  if (peer.window.slots != 0)
    return error(ErrorCode::DataLoss, Reason::Corrupt, "node ", peer.spec.name,
                 " told its window twice");
  if (window.slots == 0 || window.slots > kMostSlots)
    return wrong_window(peer.spec, "slots", window.slots, kMostSlots);
  if (window.slot_bytes != slot_bytes_)
    return wrong_window(peer.spec, "slot_bytes", window.slot_bytes, slot_bytes_);
  peer.window = window;
  return {};
}

bool NodeGroup::post(const Peer& peer, const net::Frame& frame, net::OnLoan& on_loan) {
  on_loan.fetch_add(1, std::memory_order_relaxed);
  if (links_.post(peer.spec.peer, frame, on_loan) == net::Progress::Done) return true;
  on_loan.fetch_sub(1, std::memory_order_relaxed);
  return false;  // where the link has failed, its loss will revoke the communicator
}

bool NodeGroup::may_send(std::uint32_t node) const {
  const Peer& peer = peers_[node];
  const std::uint64_t credits = signals_[node].load(std::memory_order_acquire);
  return peer.sent - std::min(credits, peer.sent) < peer.window.slots;
}

bool NodeGroup::send(std::uint32_t node, std::uint64_t seq, std::span<const std::byte> payload,
                     net::OnLoan& on_loan) {
  if (!may_send(node)) return false;
  Peer& peer = peers_[node];
  const auto slot = static_cast<std::uint32_t>(peer.sent % peer.window.slots);
  net::Frame frame{header(net::FrameKind::Put, seq), payload};
  frame.header.region = peer.window.region;
  frame.header.offset = peer.window.first_byte + std::uint64_t{slot} * slot_bytes_;
  frame.header.signal = peer.window.first_signal + slot;
  frame.header.add = 1;
  if (!post(peer, frame, on_loan)) return false;
  notes_.posted(payload.size());
  ++peer.sent;
  return true;
}

const std::byte* NodeGroup::arrived(std::uint32_t node) const {
  const Peer& peer = peers_[node];
  const std::uint64_t slot = peer.used_up % slots_;
  const std::uint64_t filled = signals_[first_arrival(node) + slot].load(std::memory_order_acquire);
  return filled > peer.used_up / slots_ ? peer.slots + slot * slot_bytes_ : nullptr;
}

void NodeGroup::give_credits() {
  const std::uint64_t least = std::max(slots_ / 2, 1U);
  for_each_peer([&](std::uint32_t node) {
    Peer& peer = peers_[node];
    const std::uint64_t untold = peer.used_up - peer.credited;
    if (untold < least || peer.window.slots == 0) return;
    net::Frame frame{header(net::FrameKind::Signal, 0), {}};
    frame.header.region = peer.window.region;
    frame.header.signal = peer.window.first_credit;
    frame.header.add = static_cast<std::uint32_t>(untold);
    if (!post(peer, frame, credits_on_loan_)) return;
    peer.credited = peer.used_up;
    notes_.credited();
  });
}

const net::ReadyBody* NodeGroup::ready(std::uint32_t node, std::uint64_t seq) const {
  const Peer& peer = peers_[node];
  return peer.ready.region != 0 && peer.ready_seq == seq ? &peer.ready : nullptr;
}

void NodeGroup::tell_ready(std::uint64_t seq, const net::ReadyBody& ready) {
  for_each_peer([&](std::uint32_t node) {
    links_.send(peers_[node].spec.peer, net::MessageKind::Ready,
                header(net::FrameKind::Message, seq), {std::as_bytes(std::span(&ready, 1))});
  });
}

bool NodeGroup::put(std::uint32_t node, std::uint64_t seq, std::uint64_t offset,
                    std::uint32_t signal, std::span<const std::byte> payload,
                    net::OnLoan& on_loan) {
  const net::ReadyBody* to = ready(node, seq);
  if (to == nullptr) return false;
  net::Frame frame{header(net::FrameKind::Put, seq), payload};
  frame.header.region = to->region;
  frame.header.offset = to->first_byte + offset;
  frame.header.signal = to->signal + signal;
  frame.header.add = 1;
  if (!post(peers_[node], frame, on_loan)) return false;
  notes_.posted(payload.size());
  return true;
}

}  // namespace arcomm
