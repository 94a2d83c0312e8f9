#include "daemon/exec/net/operations/seat_reduction.h"

#include <cstring>

#include "kernels/host/launch.h"

namespace arcomm {

void SeatReduction::begin(const Communicator& communicator, const Arrival& arrival,
                          const NetworkQuestion& question, DType partials) {
  arrival_ = &arrival;
  question_ = question;
  partials_ = partials;
  seats_ = static_cast<std::uint32_t>(communicator.seats.size());
  args_.codec = question.codec;
  args_.divisor = static_cast<std::uint32_t>(communicator.ranks());
}

void SeatReduction::reduce(const ReduceAs& as, std::uint64_t count) {
  as.tell(args_);
  args_.count = count;
  all_reduce_range(Choice{}, args_, 0, count);
}

std::span<const std::byte> SeatReduction::partial(std::uint64_t first, std::uint64_t last,
                                                  std::byte* room) {
  const std::uint64_t offset = first * element_bytes(), bytes = bytes_of_partial(last - first);
  if (is_input()) return {arrival_->operations[0]->send + offset, bytes};
  for (std::uint32_t seat = 0; seat < seats_; ++seat)
    args_.inputs[seat] = arrival_->operations[seat]->send + offset;
  args_.outputs[0] = room;
  args_.num_inputs = seats_;
  args_.num_outputs = 1;
  reduce(reduce_ranks(question_, partials_), last - first);
  return {room, bytes};
}

std::span<const std::byte> SeatReduction::join(std::uint64_t first, std::uint64_t last,
                                               const std::byte* before, std::byte* room) {
  const std::span<const std::byte> own = partial(first, last, room);
  args_.inputs[0] = before;
  args_.inputs[1] = own.data();
  args_.outputs[0] = room;
  args_.num_inputs = 2;
  args_.num_outputs = 1;
  reduce(reduce_on_the_way(question_, partials_), last - first);
  return {room, own.size()};
}

void SeatReduction::finish(std::uint64_t first, std::uint64_t last,
                           std::span<const std::byte* const> partials) {
  take(partials);
  give_to_seats(first);
  reduce(reduce_partials(question_, partials_), last - first);
}

void SeatReduction::finish_coded(std::uint64_t first, std::uint64_t last,
                                 std::span<const std::byte* const> partials, std::byte* room) {
  take(partials);
  args_.outputs[0] = room;
  args_.num_outputs = 1;
  reduce(encode_result(question_), last - first);
  spread_coded(first, last, room);
}

void SeatReduction::spread_coded(std::uint64_t first, std::uint64_t last, const std::byte* blocks) {
  take({&blocks, 1});
  give_to_seats(first);
  reduce(decode_result(question_), last - first);
}

void SeatReduction::spread_coded_in_place(std::uint64_t first, std::uint64_t last,
                                          std::byte* room) {
  std::memcpy(room, recv(0) + first * element_bytes(), bytes_of_result(last - first));
  spread_coded(first, last, room);
}

void SeatReduction::take(std::span<const std::byte* const> partials) {
  args_.num_inputs = 0;
  for (const std::byte* partial : partials) args_.inputs[args_.num_inputs++] = partial;
}

void SeatReduction::give_to_seats(std::uint64_t first) {
  args_.num_outputs = seats_;
  for (std::uint32_t seat = 0; seat < seats_; ++seat)
    args_.outputs[seat] = recv(seat) + first * element_bytes();
}

void SeatReduction::spread(std::uint64_t first, std::uint64_t last) const {
  const std::uint64_t offset = first * element_bytes(), bytes = (last - first) * element_bytes();
  for (std::uint32_t seat = 1; seat < seats_; ++seat) {
    // Ranks may share memory, and one that receives where the first one does has it.
    if (recv(seat) != recv(0)) std::memcpy(recv(seat) + offset, recv(0) + offset, bytes);
  }
}

std::span<std::byte> SeatReduction::result() const {
  return {recv(0), arrival_->signature.recv_bytes()};
}

}  // namespace arcomm
