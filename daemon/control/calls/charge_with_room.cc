#include "daemon/control/calls/charge_with_room.h"

#include <algorithm>
#include <utility>

namespace arcomm {
namespace {

constexpr std::uint64_t kMakeRoomNs = 1'000'000'000;  // milliseconds where nothing fills the GPUs

// One worker has all GPUs of the node; null: there are none.
DeviceWorker* find_gpu_worker(const NodeDevices& devices) {
  const auto found = std::ranges::find_if(
      devices.workers(), [](const WorkerRef& one) { return one.worker->on_gpus(); });
  return found == devices.workers().end() ? nullptr : found->worker;
}

bool may_get_room(const WaitingCharge& wanted) {
  bool lacks_room = false;
  for (const Demand& one : wanted.demands) {
    if (one.of.ask(wanted.uid, one.amount) == FairShare::Answer::Yes) continue;
    if (!one.is_of_gpus || !one.of.could_have(wanted.uid, one.amount)) return false;
    lacks_room = true;
  }
  return lacks_room;
}

}  // namespace

void charge_with_room(ControlState& state, WaitingCharge wanted,
                      std::function<void(const Status&)> then) {
  DeviceWorker* const gpus = find_gpu_worker(state.devices);
  if (gpus == nullptr || !may_get_room(wanted)) return then(wanted.charge());
  const std::uint64_t longest = EventLoop::now_ns() + kMakeRoomNs;
  gpus->let_go_of_released(
      wanted.uid, wanted.waits_until_ns == 0 ? longest : std::min(wanted.waits_until_ns, longest),
      state.replies.on_loop<void>(
          "let go of what was released",
          [&state, session = wanted.session, charge = std::move(wanted.charge),
           then = std::move(then)](const Status& gone) {
            if (const Status stopping = state.refuse_when_stopping(); !stopping)
              return then(stopping);
            if (session.valid() && state.ledger.find(session) == nullptr) {
              return then(
                  error(ErrorCode::Aborted, Reason::RemoteDied, "session ", session, " has ended"));
            }
            const Status charged = charge();
            if (charged || gone) return then(charged);
            Error why = charged.error();
            why.message += "; memory that was released is charged for until it has gone: ";
            why.message += gone.error().message;
            then(why);
          }));
}

}  // namespace arcomm
