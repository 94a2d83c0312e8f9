// Those of a worker's communicators that have had open arrivals lately, here or, as other nodes
// have said, there, and what of them is past its deadline. The table of communicators, which owns
// them, says who is to be looked at, and does what is to be done. Thread: the worker's.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <vector>

#include "daemon/comm/communicator.h"

namespace arcomm {

class OpenCommunicators {
 public:
  // Something of it is open, until then at the latest.
  void await(Communicator& communicator, std::uint64_t deadline_ns);
  // Something of it is open elsewhere, where its deadline is looked after.
  void list(Communicator& communicator);
  // It goes.
  void erase(Communicator& communicator);
  void clear();

  // In no order; with some that have nothing open any more.
  std::span<Communicator* const> all() const { return open_; }

  // Is there anything to sweep? Cheap before next_deadline_ns().
  bool begin_sweep(std::uint64_t now_ns);
  // What is late of the next communicator that has something so, after begin_sweep() said yes:
  // call it until there is none, then all was looked at. A sweep that is interrupted resumes there,
  // and stays due.
  struct Late {
    Communicator& communicator;
    Arrival& arrival;
  };
  std::optional<Late> next_late(std::uint64_t now_ns);
  std::uint64_t next_deadline_ns() const { return next_deadline_ns_; }

 private:
  static constexpr std::uint64_t kNever = std::numeric_limits<std::uint64_t>::max();
  Arrival* late_of(const Communicator& communicator, std::uint64_t now_ns);

  std::vector<Communicator*> open_;
  std::size_t swept_ = 0;                 // so many of them in the sweep that goes on
  std::uint64_t swept_next_ns_ = kNever;  // the next deadline that it has seen
  std::uint64_t last_sweep_ns_ = 0;
  std::uint64_t next_deadline_ns_ = kNever;
};

}  // namespace arcomm
