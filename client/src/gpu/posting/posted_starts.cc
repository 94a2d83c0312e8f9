#include "client/src/gpu/posting/posted_starts.h"

#include <algorithm>
#include <cstdlib>
#include <string_view>

#include "client/src/gpu/posting/stream_watch.h"

namespace arcomm::client {

Result<PostMode> post_mode_from_environment() {
  const char* const value = std::getenv("ARCOMM_POST");
  const std::string_view word = value != nullptr ? value : "";
  if (word.empty() || word == "kernel") return PostMode::Kernel;
  if (word == "memops") return PostMode::Memory;
  return error(ErrorCode::InvalidArgument, Reason::BadValue, "ARCOMM_POST is \"", word,
               "\": kernel or memops expected");
}

PostedStarts::PostedStarts(Parts parts, StreamOrder& order, CallNotes& notes)
    : parts_(std::move(parts)),
      order_(order),
      notes_(notes),
      by_memory_(parts_.mode == PostMode::Memory
                     ? std::make_shared<MemoryStarts>(parts_.gpu, parts_.mailbox)
                     : nullptr),
      by_plan_(kMaxDevicePlans),
      was_started_(kMaxDevicePlans) {
  std::ranges::fill(by_path_, parts_.starts_before);
}

Status PostedStarts::post(GpuPlan& plan, void* stream) {
  const Result<bool> capturing = parts_.gpu->is_capturing(stream);
  if (!capturing) return capturing.error();
  std::uint32_t& on_path = by_path_[static_cast<std::uint32_t>(plan.path)];
  if (!*capturing) order_.note(stream);
  notes_.note(plan.path, plan.key.spec, *capturing);
  const GpuPost start{.mailbox = parts_.mailbox->words(),
                      .doorbells = parts_.mailbox->doorbells(),
                      .notes = parts_.mailbox->notes(),
                      .path = plan.path,
                      .plan = plan.id.index,
                      .timeout_ns = plan.timeout_ns,
                      .order = *capturing             ? StartOrder::AsItComes
                               : order_.has_several() ? StartOrder::Taken
                                                      : StartOrder::Counted,
                      .called_before = on_path,
                      .identity = order_.identity(*capturing)};
  // What a graph starts is not known here, so once there is one only the GPU knows the numbers.
  const bool by_memory = by_memory_ != nullptr && !*capturing && !order_.was_captured();
  ARC_RETURN_IF_ERROR(by_memory ? post_by_memory(start, stream) : parts_.gpu->post(start, stream));
  order_.started(*capturing);
  notes_.called(plan.path);
  if (*capturing) {
    plan.is_captured = true;  // the graph may be replayed at any time from now on
  } else {
    ++by_plan_[plan.id.index];
    was_started_[plan.id.index] = has_started_ = true;
    ++on_path;
  }
  return {};
}

Status PostedStarts::post_by_memory(const GpuPost& post, void* stream) {
  const std::uint32_t number = post.called_before + 1;
  by_memory_->expect(post.path, number, post.timeout_ns);
  Status posted = watch_streams(by_memory_);
  if (posted) {
    posted =
        parts_.gpu->post_by_memory({.post = post,
                                    .number = number,
                                    .note = {.posted = by_plan_[post.plan] + 1, .number = number},
                                    .waits_for_order = post.order == StartOrder::Taken},
                                   stream);
  }
  if (!posted) by_memory_->take_back(post.path, number);
  return posted;
}

PostedStarts::Progress::Progress(const std::vector<std::uint32_t>& by_plan)
    : by_plan_(by_plan), words_(kMailboxWithNotesBytes) {}

Result<PostedStarts::Progress> PostedStarts::progress() const {
  Progress now(by_plan_);
  ARC_RETURN_IF_ERROR(parts_.gpu->read(now.words_.data(), parts_.mailbox->words(),
                                       now.words_.size(), kWordsWithin));
  return now;
}

bool PostedStarts::Progress::has_ended(const GpuPlan& plan) const {
  const auto* words = reinterpret_cast<const DeviceMailbox*>(words_.data());
  const auto* notes = reinterpret_cast<const PostNotes*>(words_.data() + kMailboxBytes);
  const std::uint32_t index = plan.id.index;
  const std::uint64_t done = words->paths[static_cast<std::uint32_t>(plan.path)].done;
  return client::has_ended(notes->plans[index], by_plan_[index], done);
}

bool PostedStarts::are_over(const MailboxCounts& now) const {
  for (std::uint32_t path = 0; path < kLaunchPaths; ++path) {
    const MailboxPath& words = now.words.paths[path];
    const std::uint32_t ended = done_from(words.done).number + now.left_early[path];
    if (words.posted != by_path_[path]) return false;
    if (static_cast<std::int32_t>(ended - words.posted) < 0) return false;
    if (by_memory_ != nullptr && now.passed[path] != words.posted) return false;
  }
  return true;
}

void PostedStarts::end() {
  if (by_memory_ != nullptr) by_memory_->end();
}

void PostedStarts::leave_streams() {
  if (by_memory_ != nullptr) client::leave_streams(by_memory_);
}

}  // namespace arcomm::client
