#include "daemon/exec/gpu/quiescer.h"

#include <sched.h>

#include <algorithm>

#include "daemon/exec/clock.h"
#include "daemon/exec/gpu/group/resident_path.h"

namespace arcomm {
namespace {

constexpr std::uint64_t kWithdrawNs = 30'000'000;  // microseconds where nothing is wrong
// Where they could not be quiesced the last time: each try holds up all tenants.
constexpr std::uint64_t kWithdrawAgainNs = 1'000'000;
constexpr std::uint64_t kLookAgainNs = 20'000'000;

}  // namespace

void Quiescer::tend(std::uint64_t now_ns) {
  if (!deferred_.is_due(now_ns)) return;
  const bool starts = std::ranges::any_of(engines_, [](const GpuEngine& engine) {
    return engine.grid().running() && !engine.grid().started();
  });
  // It would be taken back, and be in the way.
  if (starts || look_at_letting_go(now_ns) != LettingGo::May)
    return deferred_.put_off(now_ns, kLookAgainNs);
  const QuiesceGuard guard(*this);
  if (!guard.status()) deferred_.put_off(now_ns);
}

const GpuEngine* Quiescer::find_busy() const {
  const GpuEngine* busy = measured == nullptr ? nullptr : speculator_.find_busy(*measured);
  return busy != nullptr ? busy : deferred_.find_busy();
}

bool Quiescer::may_let_go() const {
  if (echoes_are_gone && !echoes_are_gone()) return false;
  return std::ranges::all_of(engines_, [](const GpuEngine& engine) {
    return !engine.device().is_clearing() && (engine.grid().running() || engine.grid_is_gone());
  });
}

void Quiescer::in_one_quiescing(const std::function<void()>& act) {
  const QuiesceGuard guard(*this, QuiesceGuard::AtItsEnd::Resumes);
  outer_ = &guard;
  act();
  outer_ = nullptr;
}

QuiesceGuard::QuiesceGuard(Quiescer& quiescer, AtItsEnd end) : quiescer_(quiescer), end_(end) {
  // A guard within another one's quiescing does not wait for it once more.
  if (quiescer_.outer_ != nullptr && !quiescer_.outer_->status()) {
    status_ = quiescer_.outer_->status();
    return;
  }
  status_ = wait_for_queues();
  quiescer_.was_quiesced_ = status_.ok();
  if (!status_) return;
  for (GpuEngine& engine : quiescer_.engines_) {
    if (!engine.grid().running()) continue;
    status_ = engine.pause(quiescer_.turn_);
    if (!status_) return;
    stopped_.push_back(&engine);
  }
}

Status QuiesceGuard::wait_for_queues() {
  for (GpuGroup* group : quiescer_.groups_) {
    if (group->running.number != 0) quiescer_.speculator_.open(*group, group->running);
  }
  const std::uint64_t patience_ns = quiescer_.was_quiesced_ ? kWithdrawNs : kWithdrawAgainNs;
  const std::uint64_t until = quiescer_.turn_.until_ns(now_ns(), patience_ns);
  const GpuEngine* busy = nullptr;
  for (GpuGroup* group : quiescer_.groups_) {
    const std::uint64_t now = now_ns();
    if (!quiescer_.speculator_.withdraw(*group, now < until ? until - now : 0) && busy == nullptr)
      busy = quiescer_.speculator_.find_busy(*group);
  }
  while (quiescer_.network_has_left && !quiescer_.network_has_left()) {
    if (now_ns() >= until) {
      return error(ErrorCode::Unavailable, Reason::None,
                   "an operation on a GPU here waits for data of another node; try again");
    }
    ::sched_yield();
  }
  while (quiescer_.echoes_have_ended && !quiescer_.echoes_have_ended()) {
    if (now_ns() >= until) {
      return error(ErrorCode::Unavailable, Reason::None,
                   "a kernel that raises flags to be measured has not left its GPU; try again");
    }
    ::sched_yield();
  }
  while (busy == nullptr && (busy = quiescer_.find_busy()) != nullptr) {
    if (now_ns() >= until) break;
    busy = nullptr;
    ::sched_yield();
  }
  if (busy == nullptr) return {};
  return error(ErrorCode::Unavailable, Reason::None, busy->name(),
               " has not come to what was launched on it: other work keeps it busy (nvidia-smi "
               "lists the processes there); try again");
}

QuiesceGuard::~QuiesceGuard() {
  if (status_ && end_ == AtItsEnd::LetsGo) {
    // A departed session's memory may go only when nothing that could use it is left.
    for (GpuGroup* group : quiescer_.groups_) {
      for (GpuMember& member : group->members) {
        if (group->closed && !member.engine->is_late()) ResidentPath::drop_slot(member);
      }
    }
    if (quiescer_.may_let_go()) quiescer_.deferred_.release(quiescer_.engines_, quiescer_.turn_);
  }
  for (GpuEngine* engine : stopped_) engine->resume();
}

}  // namespace arcomm
