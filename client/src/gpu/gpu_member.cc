#include "client/src/gpu/gpu_member.h"

#include <algorithm>
#include <chrono>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "client/src/gpu/posting/stream_watch.h"

namespace arcomm::client {
namespace {

constexpr const char* kPreparing = "preparing an operation of this communicator";

// Mailboxes that a start may still touch, until the process ends.
void keep_for_ever(std::shared_ptr<GpuMailbox> mailbox, std::shared_ptr<GpuExchange> exchange) {
  static std::mutex mutex;
  static auto* kept =
      new std::vector<std::pair<std::shared_ptr<GpuMailbox>, std::shared_ptr<GpuExchange>>>;
  const std::lock_guard lock(mutex);
  kept->emplace_back(std::move(mailbox), std::move(exchange));
}

}  // namespace

GpuMember::GpuMember(Parts parts)
    : parts_(std::move(parts)),
      error_(parts_.gpu, parts_.mailbox),
      notes_(parts_.mailbox->host_pages()),
      starts_({.gpu = parts_.gpu, .mailbox = parts_.mailbox, .mode = parts_.post}, order_, notes_),
      plans_(parts_.daemon, parts_.member, starts_) {
  if (parts_.exchange == nullptr && parts_.ranks != 1) return;
  in_stream_ = std::make_unique<InStreamPath>(InStreamPath::Parts{.gpu = parts_.gpu,
                                                                  .mailbox = parts_.mailbox,
                                                                  .exchange = parts_.exchange,
                                                                  .rank = parts_.rank,
                                                                  .ranks = parts_.ranks,
                                                                  .trigger = parts_.trigger});
}

GpuMember::~GpuMember() {
  close(error(ErrorCode::Aborted, Reason::Revoked, "the communicator was released"));
  const Deadline deadline = Deadline::after(kWordsWithin);
  while (!order_.was_captured() && !is_stream_watch()) {
    if (is_idle()) {
      if (in_stream_ != nullptr) in_stream_->forget();
      starts_.leave_streams();
      return;
    }
    if (deadline.passed()) break;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  // A start that is still to run would touch what was unmapped, and take the context with it.
  keep_for_ever(std::move(parts_.mailbox), std::move(parts_.exchange));
}

bool GpuMember::is_idle() const {
  const std::uint32_t in_stream_blocks = in_stream_ == nullptr ? 0 : in_stream_->blocks();
  if (in_stream_blocks == 0 && !starts_.any()) return true;
  MailboxCounts now;
  if (!parts_.mailbox->read_counts(*parts_.gpu, now)) return false;
  return starts_.are_over(now) && now.in_stream_left == in_stream_blocks;
}

void GpuMember::close(const Error& why) {
  starts_.end();
  error_.close(why);
}

Codec GpuMember::codec_for(const ErrorClass& wanted, const CollectiveCall& call) const {
  const Codec codec = parts_.launches.codec_for(wanted, launch_key_of(call));
  return codec != Codec::None && check_codec(call, codec) ? codec : Codec::None;
}

Status GpuMember::check_codec(const OperationSpec& call, Codec codec) const {
  LaunchKey key = launch_key_of(call);
  key.codec = codec;
  if (parts_.launches.takes_codec(key)) return {};
  const auto refused = [&](const auto&... why) {
    return error(ErrorCode::InvalidArgument, Reason::Unsupported, "codec ", text_of(codec),
                 " does not serve ", why...);
  };
  if (parts_.ranks == 1) return refused("a rank alone on a GPU: ask for no codec");
  if (!parts_.why_no_codecs.empty())
    return refused("this communicator: ", parts_.why_no_codecs, "; ask for no codec");
  if (!parts_.launches.has_in_stream()) {
    return refused(
        "this communicator: on GPUs codecs are in-stream, and nothing of it is "
        "(arctl comms says why), or between nodes that all allow them (gpu.codecs); ask for no "
        "codec");
  }
  std::uint64_t most = 0;
  for (const LaunchRow& row : parts_.launches.rows()) {
    if (row.path == LaunchPath::InStream && (row.codecs & bit_of(codec)) != 0 &&
        (row.dtypes & bit_of(key.dtype)) != 0)
      most = std::max(most, row.most_bytes);
  }
  if (most != 0) {
    return refused(key.bytes, " bytes of ", key.dtype, " here, only up to ", most,
                   ": cut the operation up, or ask for no codec");
  }
  return refused(
      "this communicator: the daemon's gpu.codecs is off, or its GPUs' stores of 128 "
      "bytes do not arrive whole (arctl comms says so); ask for no codec");
}

Status GpuMember::prepare_codec(Codec codec) {
  if (codec == Codec::None) return {};
  ARC_RETURN_IF_ERROR(check_codec({.dtype = DType::Float32}, codec));
  // Between nodes the daemon has them.
  return in_stream_ == nullptr ? Status() : in_stream_->load(codec);
}

Status GpuMember::all_reduce_in_stream(const CollectiveCall& call, const Launch& launch,
                                       std::uint64_t timeout_ms, void* stream, Deadline deadline) {
  ARC_RETURN_IF_ERROR(error_.usable());
  ARC_RETURN_IF_ERROR(in_stream_->prepare(call));
  const std::unique_lock lock(mutex_, deadline.when());
  if (!lock) return other_thread_busy(kPreparing);
  const Result<bool> capturing = parts_.gpu->is_capturing(stream);
  if (!capturing) return capturing.error();
  if (!*capturing) order_.note(stream);
  notes_.note(launch.path, call, *capturing);
  ARC_RETURN_IF_ERROR(in_stream_->launch(call, {.launch = launch,
                                                .timeout_ns = timeout_ms * 1'000'000,
                                                .is_captured = *capturing,
                                                .identity = order_.identity(*capturing),
                                                .waits_behind = order_.has_several(),
                                                .stream = stream}));
  order_.started(*capturing);
  notes_.called(launch.path);
  return {};
}

Status GpuMember::all_reduce(const CollectiveCall& call, const GpuBuffer& send,
                             const GpuBuffer& recv, std::uint64_t timeout_ms, void* stream,
                             Deadline deadline) {
  ARC_RETURN_IF_ERROR(error_.usable());
  const std::unique_lock lock(mutex_, deadline.when());
  if (!lock) return other_thread_busy(kPreparing);
  const Result<GpuPlan*> plan = plan_for(call, send, recv, timeout_ms, deadline);
  if (!plan) return plan.error();
  return starts_.post(**plan, stream);
}

Result<GpuPlanKey> GpuMember::hold(const CollectiveCall& call, const GpuBuffer& send,
                                   const GpuBuffer& recv, std::uint64_t timeout_ms,
                                   Deadline deadline) {
  ARC_RETURN_IF_ERROR(error_.usable());
  const std::unique_lock lock(mutex_, deadline.when());
  if (!lock) return other_thread_busy(kPreparing);
  const Result<GpuPlan*> plan = plan_for(call, send, recv, timeout_ms, deadline);
  if (!plan) return plan.error();
  ++(*plan)->holders;
  return (*plan)->key;
}

Result<GpuPlan*> GpuMember::plan_for(const CollectiveCall& call, const GpuBuffer& send,
                                     const GpuBuffer& recv, std::uint64_t timeout_ms,
                                     Deadline deadline) {
  const Launch launch = launch_of(call);
  if (!launch.needs_daemon())
    return error(ErrorCode::Internal, Reason::Bug, "the daemon needs no plan of what is in-stream");
  return plans_.get(
      {.call = call, .send = send, .recv = recv, .path = launch.path, .timeout_ms = timeout_ms},
      deadline);
}

void GpuMember::let_go(const GpuPlanKey& key) {
  const std::lock_guard lock(mutex_);
  if (GpuPlan* plan = plans_.find(key); plan != nullptr && plan->holders > 0) --plan->holders;
}

Status GpuMember::start(const GpuPlanKey& key, void* stream, Deadline deadline) {
  ARC_RETURN_IF_ERROR(error_.usable());
  const std::unique_lock lock(mutex_, deadline.when());
  if (!lock) return other_thread_busy(kPreparing);
  if (GpuPlan* plan = plans_.find(key); plan != nullptr && !plan->may_be_gone)
    return starts_.post(*plan, stream);
  return error(ErrorCode::FailedPrecondition, Reason::UnknownHandle,
               "the plan's memory was freed or deregistered: create the plan again");
}

bool GpuMember::may_drop_plans_of(BufferId buffer, const IsThere& is_there, Deadline deadline) {
  const std::unique_lock lock(mutex_, deadline.when());
  return lock && plans_.nobody_needs(buffer, is_there);
}

Result<bool> GpuMember::drop_unneeded_plans_of(BufferId buffer, const IsThere& is_there,
                                               Deadline deadline) {
  const std::unique_lock lock(mutex_, deadline.when());
  if (!lock) return other_thread_busy(kPreparing);
  if (!plans_.nobody_needs(buffer, is_there)) return false;
  ARC_RETURN_IF_ERROR(plans_.drop_those_on(buffer, deadline));
  return true;
}

Status GpuMember::drop_plans_of(BufferId buffer, Deadline deadline) {
  const std::unique_lock lock(mutex_, deadline.when());
  if (!lock) return other_thread_busy(kPreparing);
  return plans_.drop_those_on(buffer, deadline);
}

Status GpuMember::drop_plans(Deadline deadline) {
  const std::unique_lock lock(mutex_, deadline.when());
  if (!lock) return other_thread_busy(kPreparing);
  return plans_.drop_all(deadline);
}

}  // namespace arcomm::client
