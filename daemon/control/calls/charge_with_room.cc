#include "daemon/control/calls/charge_with_room.h"

#include <algorithm>
#include <chrono>
#include <utility>

namespace arcomm {
namespace {

// A worker that turns needs milliseconds where nothing fills the GPUs, and says at the end of this
// what is in the way. Of another one nobody waits for more.
constexpr std::chrono::milliseconds kMakeRoom{1000}, kUntilItsAnswer{1200};

// One worker has all GPUs of the node; null: there are none.
DeviceWorker* find_gpu_worker(const NodeDevices& devices) {
  const auto found = std::ranges::find_if(
      devices.workers(), [](const WorkerRef& one) { return one.worker->on_gpus(); });
  return found == devices.workers().end() ? nullptr : found->worker;
}

bool may_get_room(const ControlState& state, const WaitingCharge& wanted) {
  bool lacks_room = false;
  for (const Demand& one : wanted.demands) {
    const FairShare::Answer answer = one.of.ask(wanted.uid, one.amount);
    if (answer == FairShare::Answer::Yes) continue;
    if (!one.is_of_gpus || !one.of.could_have(wanted.uid, one.amount)) return false;
    // Others' memory would go, and its own limit be where it was.
    if (answer == FairShare::Answer::UidHasMost && !state.at_workers.has_any(wanted.uid))
      return false;
    lacks_room = true;
  }
  return lacks_room;
}

}  // namespace

void charge_with_room(ControlState& state, WaitingCharge wanted,
                      std::function<void(const Status&)> then) {
  DeviceWorker* const gpus = find_gpu_worker(state.devices);
  if (gpus == nullptr || !may_get_room(state, wanted)) return then(wanted.charge());
  const std::uint64_t longest =
      EventLoop::now_ns() + static_cast<std::uint64_t>(std::chrono::nanoseconds(kMakeRoom).count());
  auto heard = [&state, session = wanted.session, charge = std::move(wanted.charge),
                then = std::move(then)](const Status& gone) {
    if (const Status stopping = state.refuse_when_stopping(); !stopping) return then(stopping);
    if (session.valid() && state.ledger.find(session) == nullptr) {
      return then(error(ErrorCode::Aborted, Reason::RemoteDied, "session ", session, " has ended"));
    }
    const Status charged = charge();
    if (charged || gone) return then(charged);
    Error why = charged.error();
    why.message += "; memory that was released is charged for until it has gone: ";
    why.message += gone.error().message;
    then(why);
  };
  WorkerReplies replies(state.loop, kUntilItsAnswer);
  gpus->let_go_of_released(
      wanted.uid, wanted.waits_until_ns == 0 ? longest : std::min(wanted.waits_until_ns, longest),
      replies.on_loop<void>("let go of what was released", std::move(heard)));
}

}  // namespace arcomm
