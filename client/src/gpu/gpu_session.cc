#include "client/src/gpu/gpu_session.h"

#include <algorithm>
#include <span>
#include <string_view>
#include <utility>

#include "client/src/control/new_allocation.h"
#include "client/src/gpu/in_stream/gpu_exchange.h"
#include "client/src/gpu/memory/gpu_allocations.h"
#include "proto/gpu/launch_table.h"

namespace arcomm::client {

Result<std::unique_ptr<GpuSession>> GpuSession::open(const Parts& parts) {
  const Result<PostMode> post = post_mode_from_environment();
  if (!post) return post.error();
  const Result<Trigger> trigger = trigger_from_environment();
  if (!trigger) return trigger.error();
  const Result<Gpus*> gpus = load_gpus();
  if (!gpus) return gpus.error();
  const Modes modes{.post = *post, .trigger = *trigger};
  return std::unique_ptr<GpuSession>(new GpuSession(**gpus, modes, parts));
}

GpuSession::GpuSession(Gpus& gpus, Modes modes, const Parts& parts)
    : gpus_(gpus),
      modes_(modes),
      control_(parts.control),
      descriptors_(parts.descriptors),
      attached_(parts.attached),
      plans_(parts.control, parts.attached.key, parts.submission, parts.waiting),
      registration_(parts.control, parts.descriptors, parts.attached, members_, plans_),
      buffers_(registration_.of_buffers(), registration_.of_chunks()) {}

Result<std::shared_ptr<GpuMember>> GpuSession::join(std::shared_ptr<Gpu> gpu,
                                                    const CreatedCommunicator& created,
                                                    std::uint32_t rank, std::uint32_t ranks,
                                                    Deadline deadline) {
  Result<LaunchTable> launches = LaunchTable::decode(created.launch_table);
  if (!launches) return std::move(launches).error();
  const bool is_in_stream = created.exchange_bytes != 0;
  if (launches->ranks() != ranks || (launches->has_in_stream() && !is_in_stream)) {
    return error(ErrorCode::Internal, Reason::Version, "the daemon's launch table for ",
                 launches->ranks(), " ranks does not fit this communicator of ", ranks,
                 ": are client and daemon of one version?");
  }
  Result<std::vector<UniqueFd>> fds =
      descriptors_.fetch(created.fd_ticket, is_in_stream ? 3 + ranks : 2, deadline);
  if (!fds) return std::move(fds).error();
  Result<std::unique_ptr<GpuMailbox>> mailbox =
      GpuMailbox::open(*gpu, std::move((*fds)[0]), created.mailbox_bytes, std::move((*fds)[1]));
  if (!mailbox) return std::move(mailbox).error();
  std::unique_ptr<GpuExchange> exchange;
  if (is_in_stream) {
    Result<std::unique_ptr<GpuExchange>> opened = GpuExchange::open(
        *gpu, std::span(*fds).subspan(2), created.exchange_bytes, created.max_timeout_ms);
    if (!opened) return std::move(opened).error();
    exchange = std::move(*opened);
  }
  auto member = std::make_shared<GpuMember>(GpuMember::Parts{
      .gpu = std::move(gpu),
      .mailbox = std::move(*mailbox),
      .exchange = std::move(exchange),
      .launches = std::move(*launches),
      .why_no_codecs = created.why_no_codecs,
      .post = modes_.post,
      .member = created.member,
      .rank = rank,
      .ranks = ranks,
      .trigger = modes_.trigger,
      .daemon = {.create_plan = [this](const NewPlan& wanted,
                                       Deadline until) { return plans_.create(wanted, until); },
                 .destroy_plan = [this](PlanId plan,
                                        Deadline until) { return plans_.destroy(plan, until); },
                 .replace_plan = [this](PlanId plan,
                                        Deadline until) { return plans_.replace(plan, until); }}});
  members_.add(member);
  return member;
}

void GpuSession::close_members(const Error& why) {
  for (const std::shared_ptr<GpuMember>& member : members_.live()) member->close(why);
}

Status GpuSession::register_ahead(const void* address, std::size_t bytes, Deadline deadline) {
  const Result<std::shared_ptr<Gpu>> gpu = current();
  if (!gpu) return gpu.error();
  const Result<GpuBuffer> buffer = buffers_.find(**gpu, address, bytes, deadline);
  return buffer ? Status() : Status(buffer.error());
}

Result<void*> GpuSession::allocate(std::size_t bytes, Deadline deadline) {
  const Result<std::shared_ptr<Gpu>> gpu = current();
  if (!gpu) return gpu.error();
  Result<NewAllocation> made =
      NewAllocation::of(control_, descriptors_, attached_.key, bytes, (*gpu)->uuid(), deadline);
  if (!made) return std::move(made).error();
  Result<std::unique_ptr<GpuMapping>> mapping =
      (*gpu)->import_memory(made->memory(), made->bytes());
  if (!mapping) return std::move(mapping).error();
  void* const address = (*mapping)->address();
  const Result<GpuRange> range = (*gpu)->range_of(address);
  if (!range) return range.error();
  ARC_RETURN_IF_ERROR(buffers_.add_known({.range = *range, .id = made->id()}, deadline));
  made->keep();
  gpu_allocations().insert(std::make_shared<GpuAllocation>(GpuAllocation{
      .mapping = std::move(*mapping), .memory = made->take_memory(), .bytes = made->bytes()}));
  return address;
}

}  // namespace arcomm::client
