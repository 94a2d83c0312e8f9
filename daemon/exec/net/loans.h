// Payloads of an operation that are on loan to a link's streams, by peer and by chunk: a chunk's
// memory is not written, and an operation's not let go of, before they are back. A stream counts
// down on its thread; the rest is the worker's.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "transport/net/streams/bulk_queue.h"

namespace arcomm {

class Loans {
 public:
  // Chunks of an operation that may be on loan to one peer at once: enough to keep all of its
  // streams busy, few enough to be back soon when the operation is to end.
  static constexpr std::uint64_t kAhead = 8;

  explicit Loans(std::uint32_t nodes)
      : count_(nodes * kAhead), on_loan_(std::make_unique<net::OnLoan[]>(count_)) {}

  net::OnLoan& of(std::uint32_t node, std::uint64_t chunk) {
    return on_loan_[node * kAhead + chunk % kAhead];
  }
  // Is this chunk back, and every one that shares its place? Then what its payload lay in is the
  // operation's again.
  bool is_back(std::uint32_t node, std::uint64_t chunk) const {
    return is_zero(on_loan_[node * kAhead + chunk % kAhead]);
  }
  bool are_back(std::uint32_t node) const {
    return std::all_of(&on_loan_[node * kAhead], &on_loan_[node * kAhead] + kAhead, is_zero);
  }
  bool are_back() const { return std::all_of(&on_loan_[0], &on_loan_[0] + count_, is_zero); }

 private:
  static bool is_zero(const net::OnLoan& on_loan) {
    return on_loan.load(std::memory_order_acquire) == 0;
  }

  std::size_t count_;
  std::unique_ptr<net::OnLoan[]> on_loan_;
};

}  // namespace arcomm
