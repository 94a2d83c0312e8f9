#include "proto/ring/decode.h"

namespace arcomm::ring {
namespace {

OperationSpec spec_of(const WorkRequest& slot) {
  return {.send_count = slot.send_count,
          .recv_count = slot.recv_count,
          .collective = static_cast<Collective>(slot.collective),
          .dtype = static_cast<DType>(slot.dtype),
          .op = static_cast<ReduceOp>(slot.op),
          .codec = codec_in(slot.codec),
          .codec_origin = codec_origin_in(slot.codec),
          .root = slot.root};
}

}  // namespace

Decode decode(const WorkRequest& slot, Request& request, const char*& detail) {
  if (slot.magic != kRequestMagic) {
    detail = "the slot does not start with the request magic";
    return Decode::BadMagic;
  }
  request = Request{};
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
  if (slot.plan != 0) {
    request.plan = PlanId::from_bits(slot.plan);
    return request.plan.valid() ? Decode::Done : refuse("the plan id is of no generation");
  }
  request.spec = spec_of(slot);
  if (const char* fault = find_fault(request.spec)) return refuse(fault);
  request.total_count = slot.total_count == 0 ? slot.send_count : slot.total_count;
  request.first_element = slot.first_element;
  if (request.first_element > request.total_count ||
      slot.send_count > request.total_count - request.first_element) {
    return refuse("the part leaves the operation that it says it belongs to");
  }
  request.send = {BufferId::from_bits(slot.send_buffer), slot.send_offset_bytes};
  request.recv = {BufferId::from_bits(slot.recv_buffer), slot.recv_offset_bytes};
  if ((slot.send_count != 0 && !request.send.buffer.valid()) ||
      (slot.recv_count != 0 && !request.recv.buffer.valid())) {
    return refuse("a buffer id is zero");
  }
  return Decode::Done;
}

Decode decode(const WorkRequest& slot, PlanRequest& request, const char*& detail) {
  request = PlanRequest{};
  request.ticket = slot.ticket;
  if (slot.magic != kPlanMagic) {
    detail = "the slot does not start with the plans' magic";
    return Decode::BadMagic;
  }
  const auto refuse = [&detail](const char* why) {
    detail = why;
    return Decode::BadValue;
  };
  if (slot.plan != 0) {
    request.removed = PlanId::from_bits(slot.plan);
    return request.removed.valid() ? Decode::Done : refuse("the plan id is of no generation");
  }
  request.member = MemberId::from_bits(slot.member);
  if (!request.member.valid()) return refuse("the communicator id is zero");
  request.timeout_ns = slot.timeout_ns;
  request.spec = spec_of(slot);
  if (const char* fault = find_fault(request.spec)) return refuse(fault);
  request.send = {BufferId::from_bits(slot.send_buffer), slot.send_offset_bytes};
  request.recv = {BufferId::from_bits(slot.recv_buffer), slot.recv_offset_bytes};
  return Decode::Done;
}

}  // namespace arcomm::ring
