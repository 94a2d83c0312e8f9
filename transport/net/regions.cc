#include "transport/net/regions.h"

#include <sys/random.h>

#include <cerrno>

namespace arcomm::net {
namespace {

constexpr std::uint64_t kOpen = 1;
constexpr std::uint64_t kVisit = 2;
constexpr std::uint64_t kVisits = 0xfffffffe;
constexpr std::uint64_t kLowHalf = 0xffffffff;

static_assert(Regions::kMost == std::size_t{1} << 10);

std::uint64_t generation_of(std::uint64_t state) {
  return state >> 32;
}
std::size_t index_of(RegionId region) {
  return region % Regions::kMost;
}

Result<std::uint64_t> draw() {
  std::uint64_t drawn = 0;
  while (getrandom(&drawn, sizeof drawn, 0) != sizeof drawn) {
    if (errno != EINTR)
      return error(ErrorCode::Internal, Reason::None,
                   "the kernel gives no random numbers for a region's name: errno ", errno);
  }
  return drawn;
}

}  // namespace

void Regions::Visit::leave() {
  if (slot_ != nullptr) slot_->state.fetch_sub(kVisit, std::memory_order_release);
  slot_ = nullptr;
}

Result<RegionId> Regions::add(std::span<std::byte> memory, std::span<SignalWord> signals,
                              Owner owner) {
  const auto drawn = draw();
  if (!drawn) return drawn.error();
  const std::scoped_lock lock(changing_);
  for (std::size_t i = 0; i < kMost; ++i) {
    Slot& slot = (*slots_)[i];
    const std::uint64_t state = slot.state.load(std::memory_order_acquire);
    if ((state & (kOpen | kVisits)) != 0) continue;
    // The first generation is drawn; from there on it counts, so that no name comes twice.
    std::uint64_t generation =
        slot.name == 0 ? *drawn >> 32 : (generation_of(state) + 1) & kLowHalf;
    if (generation == 0) generation = 1;
    slot.memory = memory;
    slot.signals = signals;
    slot.owner = owner;
    slot.name = generation << 32 | (*drawn & (kLowHalf ^ (kMost - 1))) | i;
    slot.damaged_seq.store(kNoSeq, std::memory_order_relaxed);
    slot.damaged.store(0, std::memory_order_relaxed);
    // A visitor with an old name may add and take back its visit meanwhile: so no plain store.
    slot.state.fetch_add(((generation - generation_of(state)) << 32) + kOpen,
                         std::memory_order_release);
    return slot.name;
  }
  return error(ErrorCode::ResourceExhausted, Reason::Quota, "all ", kMost,
               " regions for peers' puts are in use");
}

bool Regions::remove(RegionId region) {
  const std::scoped_lock lock(changing_);
  Slot& slot = (*slots_)[index_of(region)];
  if (region == 0 || slot.name != region) return true;
  slot.state.fetch_and(~kOpen, std::memory_order_acq_rel);
  return (slot.state.load(std::memory_order_acquire) & kVisits) == 0;
}

Result<Regions::Visit> Regions::enter(const FrameHeader& header) {
  Slot& slot = (*slots_)[index_of(header.region)];
  // The visit comes first: from then on the region stays, and what the slot says can be read.
  const std::uint64_t state = slot.state.fetch_add(kVisit, std::memory_order_acquire);
  Visit visit(&slot);
  if ((state & kOpen) == 0 || slot.name != header.region ||
      slot.owner != Owner{header.communicator, header.epoch}) {
    dropped_.fetch_add(1, std::memory_order_relaxed);
    dropped_news_.fetch_add(1, std::memory_order_relaxed);
    return Visit();
  }
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

Regions::Damage Regions::damaged(RegionId region) const {
  const Slot& slot = (*slots_)[index_of(region)];
  if (generation_of(slot.state.load(std::memory_order_relaxed)) != generation_of(region)) return {};
  const std::uint64_t count = slot.damaged.load(std::memory_order_acquire);  // damage()'s release
  if (count == 0) return {};
  return {.count = count, .first_seq = slot.damaged_seq.load(std::memory_order_relaxed)};
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

void Regions::damage(const Visit& visit, const FrameHeader& header) {
  std::uint64_t none = kNoSeq;
  visit.slot_->damaged_seq.compare_exchange_strong(none, header.seq, std::memory_order_relaxed);
  visit.slot_->damaged.fetch_add(1, std::memory_order_release);
  damaged_news_.fetch_add(1, std::memory_order_relaxed);
}

}  // namespace arcomm::net
