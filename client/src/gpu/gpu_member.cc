#include "client/src/gpu/gpu_member.h"

#include <algorithm>
#include <thread>
#include <utility>

#include "client/src/gpu/in_stream/stream_watch.h"

namespace arcomm::client {
namespace {

// Of plans that no graph and no caller holds. The daemon has kMaxDevicePlans for everyone.
constexpr std::size_t kMostPlans = 4096;
constexpr std::size_t kDroppedAtOnce = 64;
// The daemon looks at what clients launch every 5 ms at least.
constexpr std::chrono::milliseconds kVerdictWithin{20};
// CUDA's handle for a stream of each thread's own: one name of several streams.
void* const kStreamPerThread = reinterpret_cast<void*>(std::uintptr_t{2});

GpuPlanKey key_of(const CollectiveCall& call, const GpuBuffer& send, const GpuBuffer& recv) {
  // Where nothing is moved, no address counts.
  const bool is_empty = call.is_empty();
  return {.send = is_empty ? 0 : reinterpret_cast<std::uintptr_t>(call.send),
          .recv = is_empty ? 0 : reinterpret_cast<std::uintptr_t>(call.recv),
          .spec = call,
          .send_buffer = send.id,
          .recv_buffer = recv.id};
}

// A plan ends with its epoch, too.
bool plan_is_gone(const Error& why) {
  return is_gone(why) || why.reason == Reason::Revoked;
}

// Mailboxes that a start may still touch, until the process ends.
void keep_for_ever(std::shared_ptr<GpuMailbox> mailbox, std::shared_ptr<GpuExchange> exchange) {
  static std::mutex mutex;
  static auto* kept =
      new std::vector<std::pair<std::shared_ptr<GpuMailbox>, std::shared_ptr<GpuExchange>>>;
  const std::lock_guard lock(mutex);
  kept->emplace_back(std::move(mailbox), std::move(exchange));
}

Done done_of(const Error& why) {
  return {.code = static_cast<std::uint8_t>(why.code),
          .reason = static_cast<std::uint8_t>(why.reason),
          .culprit_rank = static_cast<std::int16_t>(why.rank)};
}

}  // namespace

GpuMember::GpuMember(Parts parts) : parts_(std::move(parts)), launched_(kMaxDevicePlans) {
  if (parts_.post == PostMode::Memory)
    starts_ = std::make_shared<MemoryStarts>(parts_.gpu, parts_.mailbox);
  if (parts_.exchange == nullptr) return;
  in_stream_ = std::make_unique<InStreamPath>(InStreamPath::Parts{.gpu = parts_.gpu,
                                                                  .mailbox = parts_.mailbox,
                                                                  .exchange = parts_.exchange,
                                                                  .rank = parts_.rank,
                                                                  .ranks = parts_.ranks});
}

GpuMember::~GpuMember() {
  close(error(ErrorCode::Aborted, Reason::Revoked, "the communicator was released"));
  const Deadline deadline = Deadline::after(kWordsWithin);
  while (!was_captured_ && !is_stream_watch()) {
    if (is_idle()) {
      if (in_stream_ != nullptr) in_stream_->forget();
      if (starts_ != nullptr) leave_streams(starts_);
      return;
    }
    if (deadline.passed()) break;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  // A start that is still to run would touch what was unmapped, and take the context with it.
  keep_for_ever(std::move(parts_.mailbox), std::move(parts_.exchange));
}

bool GpuMember::is_idle() {
  const std::uint32_t in_stream_blocks = this->in_stream_blocks();
  if (in_stream_blocks == 0 &&
      std::ranges::all_of(launched_on_path_, [](auto starts) { return starts == 0; }))
    return true;
  MailboxCounts now;
  if (!parts_.mailbox->read_counts(*parts_.gpu, now)) return false;
  for (std::uint32_t path = 0; path < kLaunchPaths; ++path) {
    const MailboxPath& words = now.words.paths[path];
    const std::uint32_t ended = done_from(words.done).number + now.left_early[path];
    if (words.posted != launched_on_path_[path]) return false;
    if (static_cast<std::int32_t>(ended - words.posted) < 0) return false;
    if (starts_ != nullptr && now.passed[path] != words.posted) return false;
  }
  return now.in_stream_left == in_stream_blocks;
}

Status GpuMember::usable() const {
  if (!is_over_.load(std::memory_order_acquire)) return {};
  const std::lock_guard lock(over_mutex_);
  return *over_;
}

void GpuMember::close(const Error& why) {
  const std::lock_guard lock(over_mutex_);
  if (!over_) over_ = why;
  is_over_.store(true, std::memory_order_release);
  if (starts_ != nullptr) starts_->end();
  if (is_closed_) return;
  // A GPU that does not take the word in time is asked again by the next call that notices.
  const std::uint64_t word = to_word(done_of(why));
  is_closed_ =
      parts_.gpu->write(&parts_.mailbox->words()->closed, &word, sizeof(word), kWordsWithin).ok();
}

// A kernel knows for whom it waited; the daemon, which sees all communicators, may know why.
void GpuMember::await_verdict(DeviceMailbox& now) const {
  const Deadline deadline = Deadline::after(kVerdictWithin);
  while (now.closed == 0 && !deadline.passed()) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    const std::uint64_t* const closed = &parts_.mailbox->words()->closed;
    if (!parts_.gpu->read(&now.closed, closed, sizeof(now.closed), deadline.left())) return;
  }
}

Error GpuMember::look() {
  {
    const std::lock_guard lock(over_mutex_);
    if (over_) return *over_;
  }
  DeviceMailbox now;
  if (Status read = parts_.gpu->read(&now, parts_.mailbox->words(), sizeof(now), kWordsWithin);
      !read) {
    const bool is_late = read.error().code == ErrorCode::DeadlineExceeded;
    return is_late ? Error{ErrorCode::Ok, Reason::None, "", -1} : std::move(read).error();
  }
  const bool has_waited = done_from(now.failed).code != 0 &&
                          reason_from(done_from(now.failed).reason) == Reason::Timeout;
  if (has_waited) await_verdict(now);
  Error said = error_of(now.failed, "an operation did not end well");
  if (has_waited && reason_from(done_from(now.closed).reason) == Reason::Crossed)
    said = error_of(now.closed, "the communicator is over");
  if (said.code == ErrorCode::Ok) said = error_of(now.closed, "the communicator is over");
  if (said.code == ErrorCode::Ok) return said;
  const std::lock_guard lock(over_mutex_);
  if (!over_) over_ = said;
  is_over_.store(true, std::memory_order_release);
  return said;
}

Status GpuMember::all_reduce(const CollectiveCall& call, const GpuBuffer& send,
                             const GpuBuffer& recv, std::uint64_t timeout_ms, void* stream,
                             Deadline deadline) {
  ARC_RETURN_IF_ERROR(usable());
  const std::unique_lock lock(mutex_, deadline.when());
  if (!lock) return other_thread_busy("preparing an operation of this communicator");
  const Result<GpuPlan*> plan = plan_for(call, send, recv, timeout_ms, deadline);
  if (!plan) return plan.error();
  return post(**plan, stream);
}

Result<GpuPlanKey> GpuMember::hold(const CollectiveCall& call, const GpuBuffer& send,
                                   const GpuBuffer& recv, std::uint64_t timeout_ms,
                                   Deadline deadline) {
  ARC_RETURN_IF_ERROR(usable());
  const std::unique_lock lock(mutex_, deadline.when());
  if (!lock) return other_thread_busy("preparing an operation of this communicator");
  const Result<GpuPlan*> plan = plan_for(call, send, recv, timeout_ms, deadline);
  if (!plan) return plan.error();
  ++(*plan)->holders;
  return (*plan)->key;
}

void GpuMember::let_go(const GpuPlanKey& key) {
  const std::lock_guard lock(mutex_);
  if (GpuPlan* plan = plans_.find(key); plan != nullptr && plan->holders > 0) --plan->holders;
}

Status GpuMember::start(const GpuPlanKey& key, void* stream, Deadline deadline) {
  ARC_RETURN_IF_ERROR(usable());
  const std::unique_lock lock(mutex_, deadline.when());
  if (!lock) return other_thread_busy("preparing an operation of this communicator");
  if (GpuPlan* plan = plans_.find(key); plan != nullptr && !plan->may_be_gone)
    return post(*plan, stream);
  return error(ErrorCode::FailedPrecondition, Reason::UnknownHandle,
               "the plan's memory was freed or deregistered: create the plan again");
}

Result<GpuPlan*> GpuMember::plan_for(const CollectiveCall& call, const GpuBuffer& send,
                                     const GpuBuffer& recv, std::uint64_t timeout_ms,
                                     Deadline deadline) {
  const LaunchPath path = launch_of(call).path;
  if (path == LaunchPath::InStream)
    return error(ErrorCode::Internal, Reason::Bug, "the daemon needs no plan of what is in-stream");
  const GpuPlanKey key = key_of(call, send, recv);
  // Another timeout makes another plan; callers change theirs hardly ever.
  if (GpuPlan* plan = plans_.find(key)) {
    if (!plan->may_be_gone) return plan;
    // A start rings with the bare index, which may be another plan's by now.
    ARC_RETURN_IF_ERROR(drop(*plan, deadline));
  }
  ARC_RETURN_IF_ERROR(make_room(deadline));
  const NewPlan wanted{.member = parts_.member,
                       .send_buffer = send.id,
                       .send_offset_bytes = call.is_empty() ? 0 : send.offset_of(call.send),
                       .recv_buffer = recv.id,
                       .recv_offset_bytes = call.is_empty() ? 0 : recv.offset_of(call.recv),
                       .spec = call,
                       .timeout_ms = timeout_ms};
  Result<PlanId> id = parts_.daemon.create_plan(wanted, deadline);
  if (!id && id.error().code == ErrorCode::ResourceExhausted) {
    // Someone needs the room more than our oldest plans do.
    const Result<bool> dropped = drop_oldest(deadline);
    if (dropped && *dropped) id = parts_.daemon.create_plan(wanted, deadline);
  }
  if (!id) return std::move(id).error();
  if (id->index >= kMaxDevicePlans) {
    return error(ErrorCode::Internal, Reason::Version, "the daemon numbers its plans up to ",
                 id->index, ": are client and daemon of one version?");
  }
  GpuPlan plan{.key = key, .id = *id, .path = path, .timeout_ns = timeout_ms * 1'000'000};
  return &plans_.insert(plan);
}

Status GpuMember::make_room(Deadline deadline) {
  if (plans_.size() < kMostPlans || plans_.oldest(kMostPlans).size() < kMostPlans) return {};
  const Result<bool> dropped = drop_oldest(deadline);
  if (!dropped) return dropped.error();
  if (*dropped) return {};
  return error(ErrorCode::ResourceExhausted, Reason::Quota, "this communicator has ", plans_.size(),
               " plans (combinations of buffers and counts) in use at a time: synchronize its "
               "streams now and then, or reuse buffers");
}

// True when at least one is gone.
Result<bool> GpuMember::drop_oldest(Deadline deadline) {
  std::vector<std::byte> now(kMailboxWithNotesBytes);
  ARC_RETURN_IF_ERROR(
      parts_.gpu->read(now.data(), parts_.mailbox->words(), now.size(), kWordsWithin));
  const auto* words = reinterpret_cast<const DeviceMailbox*>(now.data());
  const auto* notes = reinterpret_cast<const PostNotes*>(now.data() + kMailboxBytes);
  bool any = false;
  for (GpuPlan* plan : plans_.oldest(kDroppedAtOnce)) {
    const std::uint64_t done = words->paths[static_cast<std::uint32_t>(plan->path)].done;
    const std::uint32_t index = plan->id.index;
    if (!has_ended(notes->plans[index], launched_[index], done)) continue;
    ARC_RETURN_IF_ERROR(drop(*plan, deadline));
    any = true;
  }
  return any;
}

Status GpuMember::all_reduce_in_stream(const CollectiveCall& call, const InStreamShape& shape,
                                       std::uint64_t timeout_ms, void* stream, Deadline deadline) {
  ARC_RETURN_IF_ERROR(usable());
  ARC_RETURN_IF_ERROR(in_stream_->check_memory(call));
  const std::unique_lock lock(mutex_, deadline.when());
  if (!lock) return other_thread_busy("preparing an operation of this communicator");
  const Result<bool> capturing = parts_.gpu->is_capturing(stream);
  if (!capturing) return capturing.error();
  if (!*capturing) note_stream(stream);
  ARC_RETURN_IF_ERROR(in_stream_->launch(call, {.shape = shape,
                                                .timeout_ns = timeout_ms * 1'000'000,
                                                .is_captured = *capturing,
                                                .waits_behind = has_several_streams_,
                                                .stream = stream}));
  was_captured_ |= *capturing;
  return {};
}

void GpuMember::note_stream(void* stream) {
  const bool is_first = in_stream_blocks() == 0 &&
                        std::ranges::all_of(launched_on_path_, [](auto n) { return n == 0; });
  has_several_streams_ |= (!is_first && stream != last_stream_) || stream == kStreamPerThread;
  last_stream_ = stream;
}

Status GpuMember::post(GpuPlan& plan, void* stream) {
  const Result<bool> capturing = parts_.gpu->is_capturing(stream);
  if (!capturing) return capturing.error();
  std::uint32_t& launched_on_path = launched_on_path_[static_cast<std::uint32_t>(plan.path)];
  if (!*capturing) note_stream(stream);
  const GpuPost start{.mailbox = parts_.mailbox->words(),
                      .doorbells = parts_.mailbox->doorbells(),
                      .notes = parts_.mailbox->notes(),
                      .path = plan.path,
                      .plan = plan.id.index,
                      .timeout_ns = plan.timeout_ns,
                      .order = *capturing             ? StartOrder::AsItComes
                               : has_several_streams_ ? StartOrder::Taken
                                                      : StartOrder::Counted,
                      .called_before = launched_on_path};
  // What a graph starts is not known here, so once there is one only the GPU knows the numbers.
  const bool by_memory = starts_ != nullptr && !*capturing && !was_captured_;
  ARC_RETURN_IF_ERROR(by_memory ? post_by_memory(start, stream) : parts_.gpu->post(start, stream));
  if (*capturing) {
    plan.is_captured = true;  // the graph may be replayed at any time from now on
    was_captured_ = true;
  } else {
    ++launched_[plan.id.index];
    ++launched_on_path;
  }
  return {};
}

Status GpuMember::post_by_memory(const GpuPost& post, void* stream) {
  const std::uint32_t number = post.called_before + 1;
  starts_->expect(post.path, number, post.timeout_ns);
  Status posted = watch_streams(starts_);
  if (posted) {
    posted =
        parts_.gpu->post_by_memory({.post = post,
                                    .number = number,
                                    .note = {.posted = launched_[post.plan] + 1, .number = number},
                                    .waits_for_order = post.order == StartOrder::Taken},
                                   stream);
  }
  if (!posted) starts_->take_back(post.path, number);
  return posted;
}

Status GpuMember::drop_plans_of(BufferId buffer, Deadline deadline) {
  const std::unique_lock lock(mutex_, deadline.when());
  if (!lock) return other_thread_busy("preparing an operation of this communicator");
  return drop(plans_.users_of(buffer), deadline);
}

Status GpuMember::drop_plans(Deadline deadline) {
  const std::unique_lock lock(mutex_, deadline.when());
  if (!lock) return other_thread_busy("preparing an operation of this communicator");
  return drop(plans_.all(), deadline);
}

Status GpuMember::drop(const std::vector<GpuPlan*>& plans, Deadline deadline) {
  for (GpuPlan* plan : plans) ARC_RETURN_IF_ERROR(drop(*plan, deadline));
  return {};
}

Status GpuMember::drop(GpuPlan& plan, Deadline deadline) {
  Status gone = parts_.daemon.destroy_plan(plan.id, deadline);
  if (!gone && !plan_is_gone(gone.error())) {
    const ErrorCode code = gone.error().code;
    plan.may_be_gone |= code == ErrorCode::DeadlineExceeded || code == ErrorCode::Unavailable;
    return gone;
  }
  plans_.erase(plan);
  return {};
}

}  // namespace arcomm::client
