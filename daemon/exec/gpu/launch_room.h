// Which communicators may have launched operations on the GPUs at a time, so that no two
// communicators hold each other for want of SMs, whatever their number, the number of GPUs and of
// SMs.
//
// Block b of a launched kernel waits for block b of its peers. Two communicators of many blocks
// that begin in another order on another GPU could each fill one of them, and wait for room on the
// other until their deadlines. So an operation is launched only while it has a place on all GPUs of
// its communicator, taken at once by the worker, which is the only one that launches:
//
//   narrow  It and all other narrow ones fit side by side on each of its GPUs, beside what
//           in-stream operations and the resident grid may fill and one SM more. They find room
//           whatever else happens, since nothing of that grows meanwhile.
//   wide    It does not. Of two wide ones that share a GPU one waits for the other's end.
//
// Nothing hangs then. What is narrow ends. What is wide always gets an SM on every GPU, once the
// narrow ones and clients' own kernels that run there have ended or moved on: its blocks begin in
// the order of their numbers, so that the first that has not ended is running everywhere, or is the
// next to begin. What waits for a place does so in the daemon, where it holds nothing.
//
// Communicators that share a queue (there are few) run there in the order of launching. A wide one
// behind a narrow one in one queue could fill the GPU where the narrow one has another: they wait
// for each other's end, too. So does what waits for other nodes, wide or narrow, and anything else
// in its queue: nodes launch in different orders.
//
// Turns are taken: an operation that waits is not overtaken by those it would wait for. Thread: the
// worker's.
#pragma once

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

namespace arcomm {

// What one communicator has of it. Owned by the communicator; it stays where it is while it has or
// wants a place.
struct LaunchPlace {
  struct Part {
    std::uint32_t gpu = 0;
    std::uint32_t queue = 0;
  };
  std::vector<Part> parts;   // one for each rank; constant
  std::uint32_t blocks = 0;  // of the largest of its operations in flight; 0: there are none
  bool is_wide = false;
  std::uint64_t turn = 0;  // 0: it does not wait
  // What it launches waits for other nodes: nobody may have to end before it in its queue, or
  // behind it. Constant.
  bool spans_nodes = false;
  bool is_promised = false;  // to those: it stays where nothing is launched, either

  bool has_place() const { return blocks != 0; }
};

class LaunchRoom {
 public:
  void add_gpu(std::uint32_t sms) { gpus_.push_back({.sms = sms}); }

  // In-stream operations of one communicator more, or less, may fill so many SMs of its GPUs. What
  // comes finds less room from now on; what is launched keeps its own until it ends, and before
  // has_lent() nothing may run in-stream.
  void lend(const LaunchPlace& place, std::uint32_t blocks);
  bool has_lent(const LaunchPlace& place);
  void take_back(const LaunchPlace& place, std::uint32_t blocks);

  // An operation of so many blocks, which all ranks have called, is launched now. False: it waits
  // for its turn, and asks again. 0 blocks: it waits for no peer, and needs no place.
  bool enter(LaunchPlace& place, std::uint32_t blocks);
  // The same for one that nobody may ever call: it does not wait, and makes way for those that do.
  bool enter_ahead(LaunchPlace& place, std::uint32_t blocks);
  // The same, where it is narrow: only operations in the same queue ever wait for it.
  bool enter_narrow(LaunchPlace& place, std::uint32_t blocks);
  // Nothing of the communicator is in the queues any more.
  void leave(LaunchPlace& place);
  // It is over, or its operation is: it waits no longer.
  void give_up_turn(LaunchPlace& place);

  // Whether `holder` has what `waiter` waits for.
  static bool is_in_the_way(const LaunchPlace& holder, const LaunchPlace& waiter);
  // Whether any other waits for what the holder has.
  bool is_wanted(const LaunchPlace& holder) const;
  // All that wait and may wait for the holder's end, or for that of another one that does: they
  // share a GPU with it, or with one of these.
  std::vector<const LaunchPlace*> waiting_beside(const LaunchPlace& holder) const;
  // A caller has asked has_lent() in vain since the last call: narrow ones have what it needs.
  bool take_wish() { return std::exchange(has_wish_, false); }
  // SMs for narrow operations, of which others have some: for tests and people.
  std::uint32_t narrow_room(std::uint32_t gpu) const;

 private:
  struct Gpu {
    std::uint32_t sms = 0;
    std::uint32_t in_stream = 0;  // that clients may fill
  };

  std::uint32_t narrow_taken(std::uint32_t gpu, const LaunchPlace& but) const;
  bool fits_narrow(const LaunchPlace& place, std::uint32_t blocks) const;
  bool try_enter(LaunchPlace& place, std::uint32_t blocks, std::uint64_t turn);

  std::vector<Gpu> gpus_;
  std::vector<LaunchPlace*> inside_;   // those that have a place
  std::vector<LaunchPlace*> waiting_;  // the oldest first
  std::uint64_t last_turn_ = 0;
  bool has_wish_ = false;
};

}  // namespace arcomm
