#include "daemon/exec/gpu/network/peer_wire.h"

#include <algorithm>
#include <utility>

namespace arcomm {
namespace {

constexpr std::uint32_t kLaneBits = 8;

Error wrong_window(const NodeSpec& node, const char* field, std::uint64_t value,
                   std::uint64_t expected) {
  return error(ErrorCode::DataLoss, Reason::Corrupt, "node ", node.name,
               " told windows for GPUs whose ", field, " is ", value, ", not ", expected);
}

}  // namespace

PeerWire::PeerWire(Parts parts)
    : parts_(std::move(parts)), lanes_(std::make_unique<Lane[]>(parts_.lanes)) {}

PeerWire::Transfer PeerWire::name_of(Which which) {
  return (which.step << kLaneBits | which.lane) << 1 | (which.sends ? 1 : 0);
}

PeerWire::Which PeerWire::which(Transfer transfer) {
  return {.sends = (transfer & 1) != 0,
          .lane = static_cast<std::uint32_t>(transfer >> 1) & ((1U << kLaneBits) - 1),
          .step = transfer >> 1 >> kLaneBits};
}

Status PeerWire::take(const net::WindowBody& window) {
  if (window_.slots != 0)
    return arcomm::error(ErrorCode::DataLoss, Reason::Corrupt, "node ", parts_.node.name,
                         " told its windows twice");
  const std::uint32_t slots = parts_.lanes * kFifoSteps;
  if (window.slots != slots) return wrong_window(parts_.node, "slots", window.slots, slots);
  if (window.slot_bytes != parts_.slot_bytes)
    return wrong_window(parts_.node, "slot_bytes", window.slot_bytes, parts_.slot_bytes);
  window_ = window;
  return {};
}

bool PeerWire::are_back() const {
  const auto is_zero = [](const net::OnLoan& on_loan) {
    return on_loan.load(std::memory_order_acquire) == 0;
  };
  return is_zero(credits_on_loan_) &&
         std::all_of(lanes_.get(), lanes_.get() + parts_.lanes, [&](const Lane& lane) {
           return std::all_of(lane.on_loan.begin(), lane.on_loan.end(), is_zero);
         });
}

net::FrameHeader PeerWire::header(net::FrameKind kind, std::uint64_t step) const {
  net::FrameHeader header;
  header.kind = kind;
  header.communicator = parts_.owner.communicator;
  header.epoch = parts_.owner.epoch;
  header.seq = step;
  header.region = window_.region;
  return header;
}

bool PeerWire::post(const net::Frame& frame, net::OnLoan& on_loan) {
  on_loan.fetch_add(1, std::memory_order_relaxed);
  if (parts_.links.post(parts_.node.peer, frame, on_loan) == net::Progress::Done) return true;
  on_loan.fetch_sub(1, std::memory_order_relaxed);
  return false;  // where the link has failed, its loss will revoke the communicator
}

net::Progress PeerWire::send(std::uint32_t lane, std::uint64_t step,
                             std::span<const std::byte> bytes, Transfer& transfer) {
  if (window_.slots == 0) return net::Progress::Again;
  // Acquire: what was read from the slot over there is behind its credit.
  const std::uint64_t credits = parts_.credits[lane].load(std::memory_order_acquire);
  if (step >= kFifoSteps + credits) return net::Progress::Again;
  const std::uint32_t slot = lane * kFifoSteps + slot_of(step);
  net::Frame frame{header(net::FrameKind::Put, step), bytes};
  frame.header.offset = window_.first_byte + std::uint64_t{slot} * window_.slot_bytes;
  frame.header.signal = window_.first_signal + slot;
  frame.header.add = static_cast<std::uint32_t>(bytes.size());
  if (!post(frame, lanes_[lane].on_loan[slot_of(step)])) return net::Progress::Again;
  parts_.notes.posted(bytes.size());
  transfer = name_of({.sends = true, .lane = lane, .step = step});
  return net::Progress::Done;
}

net::Progress PeerWire::receive(std::uint32_t lane, std::uint64_t step, std::span<std::byte>,
                                Transfer& transfer) {
  // The room is the slot of the step, which the peer knows.
  if (step >= kFifoSteps) ++lanes_[lane].untold;
  transfer = name_of({.sends = false, .lane = lane, .step = step});
  return net::Progress::Done;
}

net::Progress PeerWire::test(Transfer transfer, std::uint32_t& bytes) {
  const auto [sends, lane, step] = which(transfer);
  const std::uint32_t slot = slot_of(step);
  if (sends) {
    const bool is_back = lanes_[lane].on_loan[slot].load(std::memory_order_acquire) == 0;
    return is_back ? net::Progress::Done : net::Progress::Again;
  }
  const std::uint64_t now =
      parts_.arrivals[lane * kFifoSteps + slot].load(std::memory_order_acquire);
  std::uint64_t& seen = lanes_[lane].seen[slot];
  if (now == seen) {
    const net::Regions::Damage damage = parts_.damage();
    if (damage.count == 0) return net::Progress::Again;
    error_ = arcomm::error(ErrorCode::DataLoss, Reason::Corrupt, damage.count,
                           " chunks of this communicator do not fit their checksums");
    return net::Progress::Failed;
  }
  bytes = static_cast<std::uint32_t>(std::min<std::uint64_t>(now - seen, ~std::uint32_t{0}));
  seen = now;
  parts_.notes.arrived(bytes);
  return net::Progress::Done;
}

net::Progress PeerWire::cancel(Transfer transfer) {
  const auto [sends, lane, step] = which(transfer);
  const bool is_over =
      sends ? lanes_[lane].on_loan[slot_of(step)].load(std::memory_order_acquire) == 0
            : parts_.close();
  return is_over ? net::Progress::Done : net::Progress::Again;
}

net::Progress PeerWire::progress() {
  if (window_.slots == 0) return net::Progress::Again;
  bool told = false;
  for (std::uint32_t lane = 0; lane < parts_.lanes; ++lane) {
    std::uint32_t& untold = lanes_[lane].untold;
    if (untold < kCreditsAtOnce) continue;
    net::Frame frame{header(net::FrameKind::Signal, 0), {}};
    frame.header.signal = window_.first_credit + lane;
    frame.header.add = untold;
    if (!post(frame, credits_on_loan_)) continue;
    parts_.notes.credited();
    untold = 0;
    told = true;
  }
  return told ? net::Progress::Done : net::Progress::Again;
}

}  // namespace arcomm
