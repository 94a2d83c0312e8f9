// Quiesces all GPUs of the worker, so that memory may come and go: CUDA's calls for that wait for
// whatever runs or waits there. Thread: the worker's. Quiescing withdraws what was launched
// speculatively, waits until it has left, and makes the resident grids leave: microseconds, and
// where a GPU is held up what the turn's budget has left. The grids that ran come back afterwards.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

#include "daemon/exec/gpu/deferred_release.h"
#include "daemon/exec/gpu/letting_go.h"
#include "daemon/exec/gpu/speculation/speculator.h"
#include "proto/status.h"

namespace arcomm {

class QuiesceGuard;

class Quiescer {
 public:
  Quiescer(std::vector<GpuEngine>& engines, const std::vector<GpuGroup*>& groups,
           Speculator& speculator, DeferredRelease& deferred, TurnBudget& turn)
      : engines_(engines),
        groups_(groups),
        speculator_(speculator),
        deferred_(deferred),
        turn_(turn) {}

  // Acts while no grid runs and nothing waits for a client. What has been aborted has left then;
  // what all ranks have called may still run. What is deferred is released afterwards. Unavailable,
  // and nothing done, where the GPUs cannot be quiesced.
  template <typename Act>
  Status quiesced(Act act);

  // Quiescings by `act` find the GPUs quiesced, or all hear why they are not.
  void in_one_quiescing(const std::function<void()>& act);

  // Whether what lets go of memory would find nothing on the GPUs to wait for, once quiesced.
  bool may_let_go() const;
  LettingGo look_at_letting_go(std::uint64_t now_ns) { return looks_.look(may_let_go(), now_ns); }

  // Lets go of what has been deferred for long enough.
  void tend(std::uint64_t now_ns);

  // Moves what runs between nodes, and says whether none of its kernels is on the GPUs: CUDA's
  // calls would wait for one, and it for the worker.
  std::function<bool()> network_has_left;
  // Ends the kernels that wait for this thread's answers, and says whether the GPUs are rid of
  // those that had begun.
  std::function<bool()> echoes_have_ended;
  // Of those, too, that wait for other work to leave them room.
  std::function<bool()> echoes_are_gone;
  // A communicator of the daemon's own, whose queues are to be empty, too; null: there is none.
  const GpuGroup* measured = nullptr;

 private:
  friend class QuiesceGuard;
  // Where something runs that is no communicator's of clients.
  const GpuEngine* find_busy() const;

  std::vector<GpuEngine>& engines_;
  const std::vector<GpuGroup*>& groups_;
  Speculator& speculator_;
  DeferredRelease& deferred_;
  TurnBudget& turn_;
  bool was_quiesced_ = true;  // the last time
  LettingGoLooks looks_;
  const QuiesceGuard* outer_ = nullptr;  // of in_one_quiescing()
};

// While it lives, the GPUs are quiesced, if its status says so.
class QuiesceGuard {
 public:
  // A guard that resumes leaves what is deferred to those within.
  enum class AtItsEnd : std::uint8_t { LetsGo, Resumes };
  explicit QuiesceGuard(Quiescer& quiescer, AtItsEnd end = AtItsEnd::LetsGo);
  ~QuiesceGuard();
  QuiesceGuard(const QuiesceGuard&) = delete;
  QuiesceGuard& operator=(const QuiesceGuard&) = delete;

  const Status& status() const { return status_; }

 private:
  Status wait_for_queues();

  Quiescer& quiescer_;
  const AtItsEnd end_;
  std::vector<GpuEngine*> stopped_;
  Status status_;
};

template <typename Act>
Status Quiescer::quiesced(Act act) {
  const QuiesceGuard guard(*this);
  if (guard.status()) act();
  return guard.status();
}

}  // namespace arcomm
