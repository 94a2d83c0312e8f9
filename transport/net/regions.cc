#include "transport/net/regions.h"

namespace arcomm::net {
namespace {

constexpr std::uint64_t kOpen = 1;
constexpr std::uint64_t kVisit = 2;
constexpr std::uint64_t kVisits = 0xfffffffe;

std::uint64_t generation_of(std::uint64_t state) {
  return state >> 32;
}

Error unknown(RegionId region) {
  return error(ErrorCode::NotFound, Reason::UnknownHandle, "the peer names region 0x", std::hex,
               region, ", which is not, or no longer, registered");
}

}  // namespace

void Regions::Visit::leave() {
  if (slot_ != nullptr) slot_->state.fetch_sub(kVisit, std::memory_order_release);
  slot_ = nullptr;
}

Result<RegionId> Regions::add(std::span<std::byte> memory, std::span<SignalWord> signals,
                              Owner owner) {
  const std::scoped_lock lock(changing_);
  for (std::size_t i = 0; i < kMost; ++i) {
    Slot& slot = (*slots_)[i];
    const std::uint64_t state = slot.state.load(std::memory_order_acquire);
    if ((state & (kOpen | kVisits)) != 0) continue;
    slot.memory = memory;
    slot.signals = signals;
    slot.owner = owner;
    const std::uint64_t generation = (generation_of(state) + 1) & 0xffffffff;
    // A visitor with an old name may add and take back its visit meanwhile: so no plain store.
    slot.state.fetch_add(((generation - generation_of(state)) << 32) + kOpen,
                         std::memory_order_release);
    return generation << 32 | (i + 1);
  }
  return error(ErrorCode::ResourceExhausted, Reason::Quota, "all ", kMost,
               " regions for peers' puts are in use");
}

bool Regions::remove(RegionId region) {
  const std::uint64_t index = (region & 0xffffffff) - 1;
  if (index >= kMost) return true;
  const std::scoped_lock lock(changing_);
  Slot& slot = (*slots_)[index];
  const std::uint64_t state = slot.state.load(std::memory_order_acquire);
  if (generation_of(state) != generation_of(region)) return true;
  if ((state & kOpen) != 0) slot.state.fetch_and(~kOpen, std::memory_order_acq_rel);
  return (slot.state.load(std::memory_order_acquire) & kVisits) == 0;
}

Result<Regions::Visit> Regions::enter(const FrameHeader& header) {
  const std::uint64_t index = (header.region & 0xffffffff) - 1;
  if (index >= kMost) return unknown(header.region);
  Slot& slot = (*slots_)[index];
  // The visit comes first: from then on the region stays, and what the slot says can be read.
  const std::uint64_t state = slot.state.fetch_add(kVisit, std::memory_order_acquire);
  Visit visit(&slot);
  if ((state & kOpen) == 0 || generation_of(state) != generation_of(header.region))
    return unknown(header.region);
  if (slot.owner != Owner{header.communicator, header.epoch})
    return error(ErrorCode::FailedPrecondition, Reason::Revoked, "a ", text_of(header.kind),
                 " for communicator ", header.communicator, ", epoch ", header.epoch,
                 ", into a region of another one");
  const std::size_t size = slot.memory.size();
  if (header.length > size || header.offset > size - header.length)
    return error(ErrorCode::OutOfRange, Reason::OutOfBounds, "a put of ", header.length,
                 " bytes at offset ", header.offset, " of a region of ", size, " bytes");
  const bool raises = header.kind == FrameKind::Signal || header.add != 0;
  if (raises && header.signal >= slot.signals.size())
    return error(ErrorCode::OutOfRange, Reason::OutOfBounds, "signal ", header.signal,
                 " of a region with ", slot.signals.size());
  return visit;
}

std::byte* Regions::place_of(const Visit& visit, const FrameHeader& header) {
  // What has no bytes needs a place that is not null, and is not written.
  static std::byte nothing;
  return header.length == 0 ? &nothing : visit.slot_->memory.data() + header.offset;
}

void Regions::raise(const Visit& visit, const FrameHeader& header) {
  if (header.add != 0)
    visit.slot_->signals[header.signal].fetch_add(header.add, std::memory_order_release);
}

}  // namespace arcomm::net
