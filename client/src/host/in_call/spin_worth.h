// Whether a wait for the other ranks begins by spinning. It mostly does: they come within a
// microsecond, or have lost their cores for milliseconds, of which the spin is a hundredth. Where
// two ranks share a core each spin is in vain, and keeps from the other the core that it needs: an
// operation took 26 us there, where yielding or sleeping at once takes 4 to 9. Nothing tells a
// process that it is so, but that its spins are in vain, one after the other.
//
// After a few the next is left out, then two in a row, four, and so on, until one is not in vain.
// Thread: one at a time.
#pragma once

#include <algorithm>
#include <cstdint>

namespace arcomm::client {

class SpinWorth {
 public:
  // So many in a row say nothing: another rank has lost its core, and then this one. A wait that
  // finds all at once is none of them, and does not end a row.
  static constexpr std::uint32_t kBorne = 2;
  // Then a spin that is in vain costs an operation a third of a microsecond.
  static constexpr std::uint32_t kMostLeftOut = 64;

  // Of a wait that begins.
  bool spins() {
    if (left_out_ == 0) return true;
    --left_out_;
    return false;
  }

  // Of one that began by spinning: did the others come meanwhile?
  void spun(bool found) {
    if (found) {
      in_vain_ = 0;
      last_left_out_ = 0;
    } else if (++in_vain_ > kBorne) {
      last_left_out_ = std::clamp(2 * last_left_out_, 1u, kMostLeftOut);
      left_out_ = last_left_out_;
    }
  }

 private:
  std::uint32_t in_vain_ = 0;  // in a row
  std::uint32_t left_out_ = 0, last_left_out_ = 0;
};

}  // namespace arcomm::client
