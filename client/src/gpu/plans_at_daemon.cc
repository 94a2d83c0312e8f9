#include "client/src/gpu/plans_at_daemon.h"

#include <algorithm>
#include <cstdint>
#include <limits>

namespace arcomm::client {
namespace {

constexpr std::uint64_t kMostMs = std::numeric_limits<std::uint64_t>::max() / 1'000'000;

ring::WorkRequest request_of(const NewPlan& wanted) {
  ring::WorkRequest request;
  request.magic = ring::kPlanMagic;
  request.root = static_cast<std::int16_t>(wanted.spec.root);
  request.collective = static_cast<std::uint8_t>(wanted.spec.collective);
  request.dtype = static_cast<std::uint8_t>(wanted.spec.dtype);
  request.op = static_cast<std::uint8_t>(wanted.spec.op);
  request.codec = codec_byte_of(wanted.spec);
  request.member = wanted.member.bits();
  request.timeout_ns = std::min(wanted.timeout_ms, kMostMs) * 1'000'000;
  request.send_buffer = wanted.send_buffer.bits();
  request.send_offset_bytes = wanted.send_offset_bytes;
  request.recv_buffer = wanted.recv_buffer.bits();
  request.recv_offset_bytes = wanted.recv_offset_bytes;
  request.send_count = wanted.spec.send_count;
  request.recv_count = wanted.spec.recv_count;
  return request;
}

}  // namespace

PlanId PlansAtDaemon::ask(Question& question, Deadline deadline) {
  if ((submission_.features() & ring::kPlansInRing) == 0 || !submission_.ask(question)) return {};
  waiting_.wait_for(question, deadline);
  if (!submission_.end(question) || question.answer.code != 0) return {};
  return PlanId::from_bits(question.answer.seq);
}

void PlansAtDaemon::remove_late(Deadline deadline) {
  const std::vector<PlanId> more = submission_.take_late_plans();
  const std::lock_guard lock(mutex_);
  late_.insert(late_.end(), more.begin(), more.end());
  for (; !late_.empty(); late_.pop_back()) {
    const Status gone = destroy(late_.back(), deadline);
    if (gone) continue;
    const ErrorCode why = gone.error().code;
    if (why == ErrorCode::DeadlineExceeded || why == ErrorCode::Unavailable) return;
  }
}

Result<PlanId> PlansAtDaemon::create(const NewPlan& wanted, Deadline deadline) {
  remove_late(deadline);
  Question question;
  question.request = request_of(wanted);
  const PlanId made = ask(question, deadline);
  if (made.valid()) return made;
  return control_.create_plan(key_, wanted, deadline);
}

Status PlansAtDaemon::replace(PlanId plan, Deadline deadline) {
  Question question;
  question.request.magic = ring::kPlanMagic;
  question.request.plan = plan.bits();
  if (ask(question, deadline).valid()) return {};
  return destroy(plan, deadline);
}

}  // namespace arcomm::client
