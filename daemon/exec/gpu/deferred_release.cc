#include "daemon/exec/gpu/deferred_release.h"

#include <algorithm>
#include <chrono>

#include "daemon/exec/clock.h"
#include "daemon/telemetry/log/log.h"

namespace arcomm {
namespace {

constexpr std::uint64_t kFlushNs = 10'000'000;
constexpr std::uint64_t kReleaseNs = 10'000'000;  // of a turn: calls of the driver for each item
constexpr std::uint64_t kDeferNs = 5'000'000;     // what goes together shares one quiescing

// A queue that answers with an error holds nothing up any more.
bool is_idle(const GpuEngine& engine, std::uint32_t queue) {
  if (queue == 0) return true;
  const Result<bool> idle = engine.launcher().idle(queue);
  return !idle || *idle;
}

}  // namespace

DeferredRelease::~DeferredRelease() {
  // NOLINTNEXTLINE(bugprone-unhandled-exception-at-new): without memory the daemon ends here too
  static auto* const kept = new std::vector<std::deque<Item>>();
  if (!items_.empty()) kept->push_back(std::move(items_));
}

void DeferredRelease::add(Item item) {
  items_.push_back(std::move(item));
  if (first_ns_ == 0) first_ns_ = now_ns();
}

void DeferredRelease::add(Memory memory) {
  Item item;
  item.memory.push_back(std::move(memory));
  add(std::move(item));
}

void DeferredRelease::add(GpuMember& member) {
  Item item;
  item.engine = member.engine;
  item.slot = member.slot;
  item.completion = member.completion;
  item.queue = member.queue;
  for (Memory* memory : {&member.mailbox, &member.scratch, &member.resident_scratch,
                         &member.exchange, &member.network})
    item.memory.push_back(std::move(*memory));
  item.doorbells = std::move(member.doorbells);
  add(std::move(item));
}

void DeferredRelease::add(std::vector<PreparedParts> prepared, const GpuGroup& group) {
  if (prepared.empty()) return;
  Item item;
  item.prepared = std::move(prepared);
  for (const GpuMember& member : group.members)
    item.prepared_for.emplace_back(member.engine, member.queue);
  add(std::move(item));
}

bool DeferredRelease::is_due(std::uint64_t now_ns) const {
  return !items_.empty() && now_ns >= first_ns_ + kDeferNs;
}

void DeferredRelease::put_off(std::uint64_t now_ns, std::uint64_t by_ns) {
  first_ns_ = now_ns + by_ns;
}

void DeferredRelease::keep(Error why) {
  put_off(now_ns());
  stuck_until_ns_ = first_ns_;
  stuck_ = std::move(why);
}

Status DeferredRelease::stuck(std::uint64_t now_ns) const {
  if (now_ns >= stuck_until_ns_) return {};
  return stuck_;
}

const GpuEngine* DeferredRelease::find_busy() const {
  for (const Item& item : items_) {
    if (item.engine != nullptr && !is_idle(*item.engine, item.queue)) return item.engine;
    for (const auto& [engine, queue] : item.prepared_for) {
      if (!is_idle(*engine, queue)) return engine;
    }
  }
  return nullptr;
}

void DeferredRelease::release(std::vector<GpuEngine>& engines, TurnBudget& turn) {
  if (items_.empty()) return;
  for (const GpuEngine& engine : engines) {
    const Status flushed = engine.launcher().flush(turn.left(now_ns(), kFlushNs));
    if (flushed) continue;
    log::error("{}: memory is kept, as what was stored there did not arrive: {}", engine.name(),
               flushed.error().message);
    return keep(error(ErrorCode::FailedPrecondition, Reason::None, "what was stored there on ",
                      engine.name(), " did not arrive: ", flushed.error().message));
  }
  // All places before any memory: a member's entry names its peers' memory, too.
  for (Item& item : items_) {
    if (item.slot != kNoSlot && !item.engine->remove_member(item.slot)) {
      return keep(error(ErrorCode::FailedPrecondition, Reason::None, "a rank's place on ",
                        item.engine->name(), " could not be taken back; try again"));
    }
    item.slot = kNoSlot;
  }
  stuck_until_ns_ = 0;
  const std::uint64_t until = turn.until_ns(now_ns(), kReleaseNs);
  do {
    const Item& item = items_.front();
    if (item.engine != nullptr) item.engine->give_back(item.completion, item.queue);
    items_.pop_front();
    ++gone_;
  } while (!items_.empty() && now_ns() < until);
  first_ns_ = items_.empty() ? 0 : now_ns();  // the rest in a quiescing of its own
}

}  // namespace arcomm
