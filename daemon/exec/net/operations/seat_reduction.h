// One operation's elements as this node's seats have them, and what is computed of them: the node's
// partial result, which travels, and the result from all nodes' partials. Which kernels do it, and
// in which type, is the plan's (plan/network/network_stages.h). Ranges are elements. Thread: the
// worker's. Pointers are those of the arrival, valid as long as it is open.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "daemon/comm/communicator.h"
#include "daemon/plan/network/network_choice.h"
#include "daemon/plan/network/network_payload.h"
#include "daemon/plan/network/network_question.h"
#include "daemon/plan/network/network_stages.h"
#include "kernels/args.h"

namespace arcomm {

class SeatReduction {
 public:
  // `partials`: in which type they travel.
  void begin(const Communicator& communicator, const Arrival& arrival,
             const NetworkQuestion& question, DType partials);

  // What travels is encoded blocks: ranges begin where blocks do.
  bool is_coded() const { return question_.codec != Codec::None; }
  // Of an element of a result.
  std::size_t element_bytes() const { return size_of(question_.dtype); }
  // Of so many elements of a partial.
  std::uint64_t bytes_of_partial(std::uint64_t elements) const {
    return partial_bytes(question_, partials_, elements);
  }
  // The same of a chunk of the result, and whether it travels as blocks.
  std::uint64_t bytes_of_result(std::uint64_t elements) const {
    return result_bytes(question_, elements);
  }
  bool codes_result(std::uint64_t elements) const { return result_is_coded(question_, elements); }
  // A partial is what the node's one rank sends, as it is.
  bool is_input() const { return seats_ == 1 && partials_ == question_.dtype && !is_coded(); }
  bool has_others() const { return seats_ > 1; }

  // This node's partial of the range: where its rank has it, or computed into `room`.
  std::span<const std::byte> partial(std::uint64_t first, std::uint64_t last, std::byte* room);
  // That of the nodes before this one and its own, into `room`: as a ring goes.
  std::span<const std::byte> join(std::uint64_t first, std::uint64_t last, const std::byte* before,
                                  std::byte* room);
  // The result from all partials, in their order, to every seat. One of them may lie in the seats'
  // memory, at the same range.
  void finish(std::uint64_t first, std::uint64_t last, std::span<const std::byte* const> partials);
  // The same with a codec, where the result is to travel: its blocks into `room`, and what they
  // decode to, as on all other nodes, to every seat.
  void finish_coded(std::uint64_t first, std::uint64_t last,
                    std::span<const std::byte* const> partials, std::byte* room);
  // The result is at the first seat: to the others, too.
  void spread(std::uint64_t first, std::uint64_t last) const;
  // The same of blocks, to all.
  void spread_coded(std::uint64_t first, std::uint64_t last, const std::byte* blocks);
  // The same where they lie at the place of the first seat's elements; they are copied to `room`.
  void spread_coded_in_place(std::uint64_t first, std::uint64_t last, std::byte* room);

  // The first seat's.
  std::span<std::byte> result() const;

 private:
  std::byte* recv(std::uint32_t seat) const { return arrival_->operations[seat]->recv; }
  void take(std::span<const std::byte* const> partials);
  void give_to_seats(std::uint64_t first);
  void reduce(const ReduceAs& as, std::uint64_t count);

  const Arrival* arrival_ = nullptr;
  NetworkQuestion question_;
  DType partials_ = DType::Float32;
  std::uint32_t seats_ = 0;
  AllReduceArgs args_;  // of the one that is being computed
};

}  // namespace arcomm
