// How the worker's thread waits between two turns of its loop: it goes on, spins, gives its core to
// others for a moment, or sleeps until something rings.
// Thread: the worker's. Ownership: none; what it is made of outlives it.
#pragma once

#include <cstdint>

#include "daemon/exec/worker/mailbox.h"
#include "daemon/exec/worker/quiesce/quiesce_turns.h"
#include "daemon/exec/worker/turns/doze.h"
#include "daemon/exec/worker/turns/turn_times.h"
#include "daemon/exec/worker/worker.h"
#include "transport/device/lost_time.h"

namespace arcomm {

class TurnWaits {
 public:
  struct Parts {
    Worker& worker;
    Mailbox& mailbox;
    QuiesceTurns& quiesce_turns;
    Metrics& metrics;
    TurnTimes& times;
    Doze& doze;
  };
  TurnWaits(const Parts& parts, const Settings& settings) : parts_(parts) { use(settings); }

  void use(const Settings& settings) { spin_ns_ = settings.wait.spin_us * 1000; }
  void begin(std::uint64_t now_ns) { last_work_ns_ = now_ns; }
  // After a turn that ended at `now_ns`: when the next one begins.
  std::uint64_t after_turn(bool worked, std::uint64_t now_ns);
  // While the last operations end as the worker stops.
  void nap();

  bool has_slept() const { return has_slept_; }  // just before the turn that asks

 private:
  // Gives the core, or the line, to others for a moment. Returns when that was over, as the others
  // do, too: it is no part of a turn.
  std::uint64_t yield(std::uint64_t now);
  std::uint64_t relax(std::uint64_t now);
  // While streams have the last tiles of what runs; they ring nobody when they are done.
  std::uint64_t await_tiles(std::uint64_t now);
  bool rest(std::uint64_t now);  // whether it slept
  // From then until now, which it returns.
  std::uint64_t waited(Waiting how, std::uint64_t from);

  const Parts parts_;
  std::uint64_t spin_ns_ = 0;
  std::uint64_t last_work_ns_ = 0;
  bool has_slept_ = false;
  LostTime lost_time_;
};

}  // namespace arcomm
