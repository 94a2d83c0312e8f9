#include "client/src/gpu/in_stream_uses.h"

#include <algorithm>
#include <utility>
#include <vector>

namespace arcomm::client {
namespace {

struct Registry {
  std::mutex mutex;
  std::vector<std::shared_ptr<InStreamUses>> all;
};

Registry& registry() {
  static auto* one = new Registry;  // never destroyed: threads may outlive main
  return *one;
}

}  // namespace

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

Status InStreamUses::check_unused(const void* address) {
  std::vector<std::shared_ptr<InStreamUses>> all;
  {
    const std::lock_guard lock(registry().mutex);
    all = registry().all;
  }
  for (const std::shared_ptr<InStreamUses>& uses : all) {
    if (!uses->may_touch(address)) continue;
    return error(
        ErrorCode::FailedPrecondition, Reason::BadValue, "the memory at ", address,
        " is used by an operation that is still on a stream: synchronize the stream first");
  }
  return {};
}

InStreamUse& InStreamUses::of(const GpuRange& range) {
  const std::lock_guard lock(mutex_);
  InStreamUse& use = uses_[range.base];
  use.bytes = std::max(use.bytes, range.bytes);
  return use;
}

void InStreamUses::launched(InStreamUse& send, InStreamUse& recv, std::uint32_t blocks) {
  const std::lock_guard lock(mutex_);
  blocks_ += blocks;
  send.until = recv.until = blocks_;
}

void InStreamUses::captured(InStreamUse& send, InStreamUse& recv) {
  const std::lock_guard lock(mutex_);
  send.in_graph = recv.in_graph = true;
}

std::uint32_t InStreamUses::blocks() const {
  const std::lock_guard lock(mutex_);
  return static_cast<std::uint32_t>(blocks_);
}

bool InStreamUses::may_touch(const void* address) {
  const std::lock_guard lock(mutex_);
  const auto where = reinterpret_cast<std::uintptr_t>(address);
  std::uint64_t until = 0;
  bool in_graph = false;
  // Memory that was freed may have lain across what is there now: not only the nearest entry.
  for (const auto& [base, use] : uses_) {
    if (where < base || where - base >= use.bytes) continue;
    until = std::max(until, use.until);
    in_graph |= use.in_graph;
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
  const InStreamControl* const own = parts_.exchange->call().exchange[parts_.rank];
  InStreamBlock blocks[kMaxInStreamBlocks] = {};
  const Status read = parts_.gpu->read(blocks, own->blocks, sizeof(blocks), kWordsWithin);
  if (!read) return read.error().code == ErrorCode::DeadlineExceeded;
  return std::ranges::any_of(blocks, [](const auto& block) { return block.taken != block.ended; });
}

}  // namespace arcomm::client
