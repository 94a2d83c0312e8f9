#include "client/src/gpu/in_stream/in_stream_uses.h"

#include <algorithm>
#include <iterator>
#include <utility>
#include <vector>

namespace arcomm::client {
namespace {

// Far more than a program has buffers at a time; of a pool's each address is one.
constexpr std::size_t kMostUses = 4096;

struct Registry {
  std::mutex mutex;
  std::vector<std::shared_ptr<InStreamUses>> all;
};

Registry& registry() {
  static auto* one = new Registry;  // never destroyed: threads may outlive main
  return *one;
}

std::vector<std::shared_ptr<InStreamUses>> everyone() {
  const std::lock_guard lock(registry().mutex);
  return registry().all;
}

}  // namespace

InStreamUses::InStreamUses(Parts parts) : parts_(std::move(parts)), most_uses_(kMostUses) {}

std::shared_ptr<InStreamUses> InStreamUses::create(Parts parts) {
  std::shared_ptr<InStreamUses> uses(new InStreamUses(std::move(parts)));
  const std::lock_guard lock(registry().mutex);
  registry().all.push_back(uses);
  return uses;
}

void InStreamUses::forget() {
  const std::lock_guard lock(registry().mutex);
  std::erase_if(registry().all, [this](const auto& uses) { return uses.get() == this; });
}

Status InStreamUses::check_unused(const void* address, std::uint64_t bytes) {
  for (const std::shared_ptr<InStreamUses>& uses : everyone()) {
    if (!uses->may_touch(reinterpret_cast<std::uintptr_t>(address), bytes)) continue;
    return error(
        ErrorCode::FailedPrecondition, Reason::BadValue, "the memory at ", address,
        " is used by an operation that is still on a stream: synchronize the stream first");
  }
  return {};
}

void InStreamUses::forget_memory(const void* address, std::uint64_t bytes) {
  const auto base = reinterpret_cast<std::uintptr_t>(address);
  for (const std::shared_ptr<InStreamUses>& uses : everyone()) {
    const std::lock_guard lock(uses->mutex_);
    for (auto use = uses->first_overlapping(base);
         use != uses->uses_.end() && use->first < base + bytes;)
      use = uses->uses_.erase(use);
  }
}

// The first entry that ends behind `base`.
InStreamUses::Uses::iterator InStreamUses::first_overlapping(std::uintptr_t base) {
  auto entry = uses_.upper_bound(base);
  if (entry == uses_.begin()) return entry;
  const auto before = std::prev(entry);
  return base - before->first < before->second.bytes ? before : entry;
}

bool InStreamUses::knows(const void* address, std::uint64_t bytes) const {
  const std::lock_guard lock(mutex_);
  const auto where = reinterpret_cast<std::uintptr_t>(address);
  auto entry = uses_.upper_bound(where);
  if (entry == uses_.begin()) return false;
  --entry;
  const std::uint64_t offset = where - entry->first;
  return offset <= entry->second.bytes && bytes <= entry->second.bytes - offset;
}

void InStreamUses::add(const GpuRange& range) {
  drop_ended();
  const std::lock_guard lock(mutex_);
  Use merged{.bytes = range.bytes};
  for (auto entry = first_overlapping(range.base);
       entry != uses_.end() && entry->first < range.base + range.bytes;) {
    merged.until = std::max(merged.until, entry->second.until);
    merged.in_graph |= entry->second.in_graph;
    entry = uses_.erase(entry);
  }
  uses_[range.base] = merged;
}

// The entry around the range. Between the look at it and the launch another thread may have learnt
// that other memory lies across: then one that holds all of them.
InStreamUses::Use& InStreamUses::use_of(const void* address, std::uint64_t bytes) {
  std::uintptr_t base = reinterpret_cast<std::uintptr_t>(address), end = base + bytes;
  auto entry = first_overlapping(base);
  if (entry != uses_.end() && entry->first <= base && end <= entry->first + entry->second.bytes)
    return entry->second;
  Use merged;
  while (entry != uses_.end() && entry->first < end) {
    base = std::min(base, entry->first);
    end = std::max(end, entry->first + entry->second.bytes);
    merged.until = std::max(merged.until, entry->second.until);
    merged.in_graph |= entry->second.in_graph;
    entry = uses_.erase(entry);
  }
  merged.bytes = end - base;
  return uses_[base] = merged;
}

void InStreamUses::launched(const CollectiveCall& call, std::uint32_t blocks) {
  const std::lock_guard lock(mutex_);
  blocks_ += blocks;
  if (call.send_count != 0) use_of(call.send, call.send_bytes()).until = blocks_;
  if (call.recv_count != 0) use_of(call.recv, call.recv_bytes()).until = blocks_;
}

void InStreamUses::captured(const CollectiveCall& call) {
  const std::lock_guard lock(mutex_);
  if (call.send_count != 0) use_of(call.send, call.send_bytes()).in_graph = true;
  if (call.recv_count != 0) use_of(call.recv, call.recv_bytes()).in_graph = true;
}

std::uint32_t InStreamUses::blocks() const {
  const std::lock_guard lock(mutex_);
  return static_cast<std::uint32_t>(blocks_);
}

void InStreamUses::drop_ended() {
  {
    const std::lock_guard lock(mutex_);
    if (uses_.size() < most_uses_) return;
  }
  MailboxCounts now;
  const bool is_read = parts_.mailbox->read_counts(*parts_.gpu, now).ok();
  const std::lock_guard lock(mutex_);
  if (is_read && now.words.failed == 0 && now.words.closed == 0) {
    const std::uint32_t running = static_cast<std::uint32_t>(blocks_) - now.in_stream_left;
    std::erase_if(uses_, [&](const auto& entry) {
      return !entry.second.in_graph && blocks_ - entry.second.until >= running;
    });
  }
  most_uses_ = std::max(kMostUses, 2 * uses_.size());
}

bool InStreamUses::may_touch(std::uintptr_t base, std::uint64_t bytes) {
  const std::lock_guard lock(mutex_);
  std::uint64_t until = 0;
  bool in_graph = false;
  for (auto entry = first_overlapping(base);
       entry != uses_.end() && (entry->first < base + bytes || entry->first == base); ++entry) {
    until = std::max(until, entry->second.until);
    in_graph |= entry->second.in_graph;
  }
  if (until == 0 && !in_graph) return false;
  MailboxCounts now;
  const Status read = parts_.mailbox->read_counts(*parts_.gpu, now);
  // A GPU that is lost runs nothing; one that does not answer in time may.
  if (!read) return read.error().code == ErrorCode::DeadlineExceeded;
  const std::uint32_t running = static_cast<std::uint32_t>(blocks_) - now.in_stream_left;
  if (now.words.failed != 0 || now.words.closed != 0) {
    // Operations do not wait for each other then, so the count does not tell which have left; nor
    // do blocks keep their own account.
    return until != 0 && running != 0;
  }
  return (until != 0 && blocks_ - until < running) || (in_graph && runs_blocks());
}

bool InStreamUses::runs_blocks() const {
  if (parts_.exchange == nullptr) return false;  // a graph's copies keep no account
  const InStreamControl* const own = parts_.exchange->call().exchange[parts_.rank];
  InStreamBlock blocks[kMaxInStreamBlocks] = {};
  const Status read = parts_.gpu->read(blocks, own->blocks, sizeof(blocks), kWordsWithin);
  if (!read) return read.error().code == ErrorCode::DeadlineExceeded;
  return std::ranges::any_of(blocks, [](const auto& block) { return block.taken != block.ended; });
}

}  // namespace arcomm::client
