#include "daemon/exec/gpu/network/lane_windows.h"

#include <algorithm>
#include <utility>

namespace arcomm {

LaneWindows::LaneWindows(const CommunicatorSpec& spec, std::uint32_t lanes,
                         std::uint32_t slot_bytes, Links& links)
    : links_(links),
      owner_{spec.communicator, static_cast<std::uint32_t>(spec.epoch)},
      here_(spec.here),
      lanes_(lanes),
      slot_bytes_(slot_bytes),
      signals_(spec.nodes.size() * lanes * (kFifoSteps + 1)),
      wires_(spec.nodes.size()) {
  const std::span<net::SignalWord> signals(signals_);
  for (std::uint32_t node = 0; node < nodes(); ++node) {
    if (node == here_) continue;
    wires_[node] = std::make_unique<PeerWire>(PeerWire::Parts{
        .links = links,
        .node = spec.nodes[node],
        .owner = owner_,
        .lanes = lanes,
        .slot_bytes = slot_bytes,
        .arrivals = signals.subspan(first_arrival(node), std::size_t{lanes} * kFifoSteps),
        .credits = signals.subspan(first_credit(node), lanes),
        .notes = notes_,
        .damage = [this] { return links_.regions()->damaged(region_); },
        .close = [this] { return close(); }});
  }
}

Status LaneWindows::open(std::span<std::byte> memory) {
  memory_ = memory;
  if (links_.regions() == nullptr) {
    return error(ErrorCode::Internal, Reason::Bug, "a communicator of ", nodes(),
                 " nodes was to be formed without a link");
  }
  auto region = links_.regions()->add(memory_, signals_, owner_);
  if (!region) return std::move(region).error();
  region_ = *region;
  net::FrameHeader names;
  names.kind = net::FrameKind::Message;
  names.communicator = owner_.communicator;
  names.epoch = owner_.epoch;
  for (std::uint32_t node = 0; node < nodes(); ++node) {
    if (node == here_) continue;
    const net::WindowBody window{
        .region = region_,
        .first_byte = static_cast<std::uint64_t>(slots(node, 0).data() - memory_.data()),
        .first_signal = first_arrival(node),
        .slots = lanes_ * kFifoSteps,
        .slot_bytes = slot_bytes_,
        .first_credit = first_credit(node)};
    links_.send(wires_[node]->peer(), net::MessageKind::Window, names,
                {std::as_bytes(std::span(&window, 1))});
  }
  return {};
}

Status LaneWindows::receive(std::uint32_t node, net::MessageKind kind,
                            std::span<const std::byte> body) {
  if (kind != net::MessageKind::Window || body.size() != sizeof(net::WindowBody)) {
    return error(ErrorCode::DataLoss, Reason::Corrupt, "node ", wires_[node]->name(),
                 " sent a message of kind ", static_cast<unsigned>(kind), " and ", body.size(),
                 " bytes for the staging of GPUs");
  }
  return wires_[node]->take(net::body_of<net::WindowBody>(body));
}

std::span<std::byte> LaneWindows::slots(std::uint32_t node, std::uint32_t lane) const {
  const std::size_t window = std::size_t{kFifoSteps} * slot_bytes_;
  return memory_.subspan((std::size_t{before(node)} * lanes_ + lane) * window, window);
}

bool LaneWindows::are_back() const {
  return std::ranges::all_of(wires_,
                             [](const auto& wire) { return wire == nullptr || wire->are_back(); });
}

bool LaneWindows::close() {
  return region_ == 0 || links_.regions() == nullptr || links_.regions()->remove(region_);
}

bool LaneWindows::is_let_go() {
  bool is_over = close();
  for (const auto& wire : wires_) is_over &= wire == nullptr || wire->are_back();
  return is_over;
}

}  // namespace arcomm
