// How the ranks of a communicator meet for one operation in the memory of proto/host/in_call.h, and
// agree whether they run it there or the worker runs it.
//
// A rank that has found the heads of all may run the operation, unless it is contested; a rank that
// waits no longer contests it. Dekker's, hence the sequentially consistent accesses:
//   found all:  found_all = n;   contested < n?            -> in the call, and nobody is asked
//   in doubt:   contested = n;   has anybody found_all n?  -> in the call, else the worker
// One of the two sees the other. Where both do, and of several in doubt, the first to write the
// fate of n decides for all who ask; and who has not asked had found all before anybody's doubt, so
// that whoever is in doubt says "in the call" as well. A rank that goes to the worker at once has
// never shown a head for n, so nobody can have found all.
//
// Hook: called before each access that another rank may see, for tests that choose the order.
// Thread: one at a time for each rank. Time: nothing here waits.
#pragma once

#include <cstdint>

#include "proto/host/in_call.h"
#include "proto/operation_spec.h"

namespace arcomm::client {

// What ranks compare of an operation beside its count.
constexpr std::uint64_t in_call_word(const OperationSpec& spec) {
  return static_cast<std::uint64_t>(spec.dtype) | static_cast<std::uint64_t>(spec.op) << 8 |
         static_cast<std::uint64_t>(spec.collective) << 16 |
         static_cast<std::uint64_t>(codec_byte_of(spec)) << 24;
}

struct NoHook {
  void operator()() const {}
};

template <typename Hook = NoHook>
class InCallMeeting {
 public:
  // turn: how many operations the ranks have run here, modulo 2: the same on all of them.
  InCallMeeting(InCallControl& control, std::uint32_t rank, std::uint32_t ranks,
                std::uint64_t number, std::uint32_t turn, Hook hook = {})
      : control_(control), rank_(rank), ranks_(ranks), number_(number), turn_(turn), hook_(hook) {}

  // Another rank has given it to the worker, or will: then nobody needs to come.
  bool is_contested() const {
    hook_();
    return control_.contested.load(std::memory_order_acquire) >= number_;
  }

  // This rank's part lies in its area of this turn. Who sleeps is to be woken then.
  void come(const OperationSpec& spec) {
    what_ = in_call_word(spec);
    count_ = spec.send_count;
    InCallHead& head = control_.ranks[rank_].heads[turn_];
    hook_();
    head.what.store(what_, std::memory_order_relaxed);
    head.count.store(count_, std::memory_order_relaxed);
    hook_();
    head.number.store(number_, std::memory_order_release);
  }

  enum class Seen : std::uint8_t { NotAll, All, Otherwise };
  // Looks on where it has found nobody yet. Otherwise: not all will come, or not for this.
  Seen look() {
    for (; found_ < ranks_; ++found_) {
      if (found_ == rank_) continue;
      const InCallRank& other = control_.ranks[found_];
      const InCallHead& head = other.heads[turn_];
      hook_();
      const std::uint64_t there = head.number.load(std::memory_order_acquire);
      if (there > number_) return Seen::Otherwise;  // it has gone on, so the worker had it
      if (there < number_) {
        hook_();
        const bool will_not_come = other.by_worker.load(std::memory_order_acquire) >= number_;
        return will_not_come || is_contested() ? Seen::Otherwise : Seen::NotAll;
      }
      hook_();
      if (head.what.load(std::memory_order_relaxed) != what_ ||
          head.count.load(std::memory_order_relaxed) != count_)
        return Seen::Otherwise;
    }
    return Seen::All;
  }

  // After All. In the call: the areas of all hold their parts until this rank comes the next time
  // but one.
  InCallFate settle() {
    hook_();
    control_.ranks[rank_].found_all.store(number_, std::memory_order_seq_cst);
    hook_();
    if (control_.contested.load(std::memory_order_seq_cst) < number_) return InCallFate::InCall;
    return ask();
  }

  // This rank has come, and waits no longer. Who sleeps is to be woken then.
  InCallFate contest() {
    hook_();
    std::uint64_t last = control_.contested.load(std::memory_order_seq_cst);
    while (last < number_ &&
           !control_.contested.compare_exchange_weak(last, number_, std::memory_order_seq_cst)) {
    }
    return ask();
  }

 private:
  InCallFate ask() {
    auto mine = InCallFate::Worker;
    for (std::uint32_t rank = 0; rank < ranks_; ++rank) {
      hook_();
      if (control_.ranks[rank].found_all.load(std::memory_order_seq_cst) == number_)
        mine = InCallFate::InCall;
    }
    std::atomic<std::uint64_t>& place = control_.fates[number_ % std::size(control_.fates)];
    hook_();
    std::uint64_t fate = place.load(std::memory_order_acquire);
    while (fate >> 2 < number_) {
      if (place.compare_exchange_weak(fate, in_call_fate(number_, mine), std::memory_order_seq_cst))
        return mine;
    }
    return fate == in_call_fate(number_, InCallFate::InCall) ? InCallFate::InCall
                                                             : InCallFate::Worker;
  }

  InCallControl& control_;
  const std::uint32_t rank_, ranks_;
  const std::uint64_t number_;
  const std::uint32_t turn_;
  Hook hook_;
  std::uint64_t what_ = 0, count_ = 0;
  std::uint32_t found_ = 0;  // ranks below are here
};

}  // namespace arcomm::client
