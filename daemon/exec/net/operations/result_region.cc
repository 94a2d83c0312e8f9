#include "daemon/exec/net/operations/result_region.h"

#include <utility>

namespace arcomm {

Status ResultRegion::begin(NodeGroup& group, std::uint64_t seq, std::span<std::byte> memory,
                           std::uint64_t chunks) {
  group_ = &group;
  if (chunks > room_) {
    signals_ = std::make_unique<net::SignalWord[]>(chunks);
    room_ = chunks;
  }
  for (std::uint64_t i = 0; i < chunks; ++i) signals_[i].store(0, std::memory_order_relaxed);
  auto region = group.links().regions()->add(memory, {signals_.get(), chunks}, group.owner());
  if (!region) return std::move(region).error();
  region_ = *region;
  group.tell_ready(seq, {.region = region_, .first_byte = 0, .bytes = memory.size()});
  return {};
}

bool ResultRegion::end() {
  if (region_ == 0) return true;
  if (!group_->links().regions()->remove(region_)) return false;
  region_ = 0;
  return true;
}

}  // namespace arcomm
