#include "daemon/proxy/proxy_engine.h"

#include <algorithm>
#include <utility>

#include "daemon/proxy/fifo/fifo_words.h"

namespace arcomm::proxy {

Result<FifoId> ProxyEngine::add(FifoConfig config) {
  if (config.fifo == nullptr || config.wire == nullptr || config.orders == nullptr)
    return error(ErrorCode::Internal, Reason::Bug, "a FIFO without memory, wire or orders");
  ARC_RETURN_IF_ERROR(config.memory.check());
  for (const Member& member : fifos_) {
    if (member.side->group() != config.group || !member.side->failure()) continue;
    return error(ErrorCode::Aborted, Reason::Revoked,
                 "the group of this FIFO has failed: ", member.side->failure()->message);
  }
  if (config.memory.mode == SlotMode::Offset && !config.memory.pool->join()) {
    return error(ErrorCode::ResourceExhausted, Reason::OutOfMemory,
                 "the proxy's staging pool has no slot for one more FIFO: raise net.staging_bytes");
  }
  *config.fifo = DeviceFifo{};
  config.fifo->most_wait_ns = ~std::uint64_t{0};
  use_wire(config.wire, 1);
  fifos_.push_back({next_id_, FifoSide::create(std::move(config))});
  return next_id_++;
}

bool ProxyEngine::remove(FifoId id) {
  const auto found = std::find_if(fifos_.begin(), fifos_.end(),
                                  [id](const Member& member) { return member.id == id; });
  if (found == fifos_.end()) return true;
  if (!found->side->is_quiet()) return false;
  use_wire(found->side->wire(), -1);
  fifos_.erase(found);
  return true;
}

void ProxyEngine::use_wire(Wire* wire, int more) {
  int& uses = wires_[wire];
  uses += more;
  if (uses == 0) wires_.erase(wire);
}

void ProxyEngine::fail_group(std::uint64_t group, const Error& why) {
  bool any = false;
  for (const Member& member : fifos_) {
    if (member.side->group() != group || member.side->failure()) continue;
    member.side->fail(why);
    any = true;
  }
  if (any) events_.group_failed(group, why);
}

void ProxyEngine::end_early(std::uint64_t group) {
  for (const Member& member : fifos_) {
    if (member.side->group() == group) member.side->end_early();
  }
}

void ProxyEngine::forget_early(std::uint64_t group) {
  for (const Member& member : fifos_) {
    if (member.side->group() == group) member.side->forget_early_kernel();
  }
}

bool ProxyEngine::progress(std::uint64_t now_ns) {
  bool moved = false;
  for (const auto& [wire, uses] : wires_) {
    // A wire that fails says so to each FIFO that asks it for something; the others wait for data
    // that cannot come, and ask, too.
    moved |= wire->progress() == net::Progress::Done;
  }
  bool is_open = false;
  for (std::size_t i = 0; i < fifos_.size(); ++i) {
    FifoSide& side = *fifos_[(first_ + i) % fifos_.size()].side;
    const bool had_failed = side.failure().has_value();
    moved |= side.progress(now_ns);
    is_open |= side.is_open() || (side.failure() && !side.is_quiet());
    if (had_failed || !side.failure()) continue;
    const Error why = *side.failure();
    const std::uint64_t group = side.group();
    for (const Member& other : fifos_) {
      if (other.side->group() == group) other.side->fail(why);
    }
    events_.group_failed(group, why);
    is_open = true;
  }
  if (!fifos_.empty()) first_ = (first_ + 1) % fifos_.size();
  is_open_ = is_open;
  return moved;
}

std::uint64_t ProxyEngine::next_deadline_ns() const {
  std::uint64_t first = FifoOrders::kNever;
  for (const Member& member : fifos_) {
    if (member.side->is_open()) first = std::min(first, member.side->deadline_ns());
  }
  return first;
}

void ProxyEngine::set_doorbells(std::uint32_t asleep) {
  for (const Member& member : fifos_) member.side->set_doorbell(asleep);
}

void ProxyEngine::list_descriptors(std::vector<int>& descriptors) const {
  for (const auto& [wire, uses] : wires_) {
    if (wire->descriptor() >= 0) descriptors.push_back(wire->descriptor());
  }
}

}  // namespace arcomm::proxy
