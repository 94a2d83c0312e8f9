#include "client/src/host/in_call/in_call_parts.h"

#include <cstring>

#include "kernels/host/reduce_in_call.h"

namespace arcomm::client {

InCallParts::InCallParts(std::byte* memory, const InCallLayout& layout, std::uint32_t rank,
                         bool around_caches)
    : memory_(memory), layout_(layout), rank_(rank), around_caches_(around_caches) {
  args_.num_inputs = args_.divisor = layout.ranks();
  args_.num_outputs = 1;
}

void InCallParts::put(const CollectiveCall& call, std::uint32_t turn) const {
  const std::uint64_t bytes = call.send_bytes();
  if (around_caches_) {
    host::copy_for_others(call.send, part(rank_, turn, bytes), bytes);
  } else if (bytes != 0) {
    std::memcpy(part(rank_, turn, bytes), call.send, bytes);
  }
}

void InCallParts::combine(const CollectiveCall& call, std::uint32_t turn) {
  static_assert(
      kInCallCodecs == bit_of(Codec::None) && kInCallCollectives == bit_of(Collective::AllReduce),
      "combine() is written for these alone");
  if (call.is_empty()) return;
  for (std::uint32_t rank = 0; rank < layout_.ranks(); ++rank)
    args_.inputs[rank] = part(rank, turn, call.send_bytes());
  args_.inputs[rank_] = call.send;
  args_.outputs[0] = call.recv;
  args_.count = call.send_count;
  args_.dtype = call.dtype;
  args_.op = call.op;
  host::reduce_in_call(args_);
}

}  // namespace arcomm::client
