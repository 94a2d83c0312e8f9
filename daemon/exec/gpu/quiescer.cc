#include "daemon/exec/gpu/quiescer.h"

#include <sched.h>

#include "daemon/exec/clock.h"
#include "daemon/exec/gpu/group/resident_path.h"

namespace arcomm {
namespace {

constexpr std::uint64_t kWithdrawNs = 30'000'000;  // microseconds where nothing is wrong
// Where they did not come to rest the last time: each try holds up all tenants.
constexpr std::uint64_t kWithdrawAgainNs = 1'000'000;

}  // namespace

void Quiescer::tend(std::uint64_t now_ns) {
  if (!deferred_.is_due(now_ns)) return;
  const QuiesceGuard guard(*this);
  if (!guard.status()) deferred_.put_off(now_ns);
}

void Quiescer::in_one_rest(const std::function<void()>& act) {
  const QuiesceGuard guard(*this, QuiesceGuard::AtItsEnd::Resumes);
  outer_ = &guard;
  act();
  outer_ = nullptr;
}

QuiesceGuard::QuiesceGuard(Quiescer& quiescer, AtItsEnd end) : quiescer_(quiescer), end_(end) {
  // Who comes within the same rest does not wait for it once more.
  if (quiescer_.outer_ != nullptr && !quiescer_.outer_->status()) {
    status_ = quiescer_.outer_->status();
    return;
  }
  status_ = wait_for_queues();
  quiescer_.came_to_rest_ = status_.ok();
  if (!status_) return;
  for (GpuEngine& engine : quiescer_.engines_) {
    if (!engine.grid().running()) continue;
    status_ = engine.pause();
    if (!status_) return;
    stopped_.push_back(&engine);
  }
}

Status QuiesceGuard::wait_for_queues() {
  for (GpuGroup* group : quiescer_.groups_) {
    if (group->running.number != 0) quiescer_.speculator_.open(*group, group->running);
  }
  const std::uint64_t patience_ns = quiescer_.came_to_rest_ ? kWithdrawNs : kWithdrawAgainNs;
  const std::uint64_t until = now_ns() + patience_ns;
  bool quiet = true;
  for (GpuGroup* group : quiescer_.groups_) {
    const std::uint64_t now = now_ns();
    quiet = quiescer_.speculator_.withdraw(*group, now < until ? until - now : 0) && quiet;
  }
  while (quiet && !quiescer_.deferred_.is_idle()) {
    quiet = now_ns() < until;
    ::sched_yield();
  }
  if (quiet) return {};
  return error(ErrorCode::Unavailable, Reason::None,
               "a GPU has not come to what was launched on it within ", patience_ns / 1'000'000,
               " ms: other work keeps it busy; try again");
}

QuiesceGuard::~QuiesceGuard() {
  if (status_ && end_ == AtItsEnd::LetsGo) {
    // A departed session's memory may go only when nothing that could use it is left.
    for (GpuGroup* group : quiescer_.groups_) {
      for (GpuMember& member : group->members) {
        if (group->closed && !member.engine->is_late()) ResidentPath::drop_slot(member);
      }
    }
    quiescer_.deferred_.release(quiescer_.engines_);
  }
  for (GpuEngine* engine : stopped_) engine->resume();
}

}  // namespace arcomm
