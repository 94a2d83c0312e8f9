// One GPU of the worker: its kernels and queues, its resident grid, and what of them ranks have
// taken. Thread: the worker's.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "daemon/exec/gpu/hardware/gpu_hardware.h"
#include "daemon/exec/gpu/turn_budget.h"
#include "proto/status.h"
#include "transport/device/device.h"
#include "transport/device/memory.h"

namespace arcomm {

inline constexpr std::uint32_t kNoSlot = ~std::uint32_t{0};

class GpuEngine {
 public:
  GpuEngine(Device& device, GpuHardware hardware);

  Device& device() const { return *device_; }
  std::string name() const { return device_->name(); }
  int ordinal() const { return device_->ordinal(); }
  const GpuHardware& hardware() const { return hardware_; }
  GpuLauncher& launcher() const { return *hardware_.launcher; }
  ResidentGrid& grid() const { return *hardware_.grid; }

  // ---- what a rank takes, and gives back when nothing uses it any more ----
  // ResourceExhausted where every place is taken.
  Result<std::uint32_t> take_completion();
  RankCompletion& completion(std::uint32_t place) const { return launcher().words()[place]; }
  std::uint32_t take_queue();  // 0, the shared one, where no other is free
  void give_back(std::uint32_t completion, std::uint32_t queue);  // kNoSlot, 0: none

  // ---- the resident grid ----
  // Makes it leave, and waits until it has: microseconds, and 30 ms of the turn's at most.
  // Unavailable: it has not yet, try again. A GPU whose grid does not leave for seconds is broken;
  // one that is so full of other work that its grid cannot start is not.
  Status pause(TurnBudget& turn);
  // Nothing of it is on the GPU, and no launch that was taken back waits there until other work
  // leaves it room: what lets go of memory could wait for that as long.
  bool grid_is_gone() const { return !grid().running() && grid().is_idle(); }
  // Where the GPU has no room for it yet it does not run afterwards, or has not started.
  void resume();
  // The grid is paused. Unavailable: the slot is still taken, try again.
  Status remove_member(std::uint32_t slot);
  // Keeps it while operations are open, and sends it away when nothing has moved for the lease.
  // `make_room` is called before it comes: it needs SMs that waiting kernels would not leave it.
  template <typename MakeRoom>
  void tend_grid(std::uint64_t now_ns, std::uint64_t lease_ns, TurnBudget& turn,
                 MakeRoom make_room) {
    if (broken_) return;
    const bool running = grid().running();
    if (running && late_since_ns_ != 0) {  // it is on its way out, and may come back then
      static_cast<void>(pause(turn));
      return;
    }
    if (grid_wanted && !running) {
      if (now_ns < resume_again_ns_) return;
      make_room();
      resume();
    } else if (running && !grid_wanted && now_ns >= grid_moved_ns + lease_ns) {
      static_cast<void>(pause(turn));
    }
  }
  bool grid_wanted = false;         // a resident operation is open
  std::uint64_t grid_moved_ns = 0;  // one was posted or ended
  std::uint64_t grid_seen_ns = 0;   // all of it was there

  // Operations of ranks here that the grid or clients' own kernels ran, ever; the latter count when
  // they have begun.
  std::uint64_t operations_elsewhere = 0;

  // ---- health ----
  // An error sticks to the process, whichever call meets it first: nothing that this GPU is asked
  // for will be done any more.
  bool broken() const { return broken_; }
  // Something is late that would take no time if nothing held it up: nobody should wait for more.
  bool is_late() const { return late_since_ns_ != 0; }
  void look_at_health();

 private:
  // Counts how long something is late that takes no time on a GPU that works.
  Status in_time(Status done, const char* what);
  void break_down(const char* what, const Error& why);

  Device* device_;
  GpuHardware hardware_;
  std::vector<std::uint32_t> free_completions_;
  std::vector<std::uint32_t> free_queues_;  // the launcher's own ones
  std::uint64_t resume_again_ns_ = 0;       // not before
  std::uint64_t late_since_ns_ = 0;         // 0: nothing is
  bool broken_ = false;
};

}  // namespace arcomm
