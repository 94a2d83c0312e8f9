#include "proto/ring/decode.h"

#include <limits>

namespace arcomm::ring {

Decode decode(const WorkRequest& slot, Request& request, const char*& detail) {
  if (slot.magic != kRequestMagic) {
    detail = "the slot does not start with the request magic";
    return Decode::BadMagic;
  }
  request = Request{};
  request.kind = slot.kind;
  request.ticket = slot.ticket;
  request.member = MemberId::from_bits(slot.member);
  request.seq = slot.seq;
  request.timeout_ns = slot.timeout_ns;
  request.submitted_ns = slot.submitted_ns;
  const auto refuse = [&detail](const char* why) {
    detail = why;
    return Decode::BadValue;
  };
  if (!request.member.valid()) return refuse("the communicator id is zero");
  switch (slot.kind) {
    case RequestKind::StartPlan:
      request.plan = PlanId::from_bits(slot.plan);
      return request.plan.valid() ? Decode::Done : refuse("the plan id is zero");
    case RequestKind::AllReduce:
      break;
    default:
      return refuse("the request kind is unknown to this daemon");
  }
  if (slot.dtype >= kDTypes) return refuse("the dtype is unknown");
  if (slot.op >= kReduceOps) return refuse("the reduce operation is unknown");
  if (slot.codec >= kCodecs) return refuse("the codec is unknown");
  request.dtype = static_cast<DType>(slot.dtype);
  request.op = static_cast<ReduceOp>(slot.op);
  request.codec = static_cast<Codec>(slot.codec);
  request.count = slot.count;
  if (slot.count > std::numeric_limits<std::uint64_t>::max() / size_of(request.dtype)) {
    return refuse("count times the element size overflows 64 bits");
  }
  request.total_count = slot.total_count == 0 ? slot.count : slot.total_count;
  request.first_element = slot.first_element;
  if (request.first_element > request.total_count ||
      request.count > request.total_count - request.first_element) {
    return refuse("the part leaves the operation that it says it belongs to");
  }
  request.send = {BufferId::from_bits(slot.send_buffer), slot.send_offset_bytes};
  request.recv = {BufferId::from_bits(slot.recv_buffer), slot.recv_offset_bytes};
  if (slot.count != 0 && (!request.send.buffer.valid() || !request.recv.buffer.valid())) {
    return refuse("a buffer id is zero");
  }
  return Decode::Done;
}

}  // namespace arcomm::ring
