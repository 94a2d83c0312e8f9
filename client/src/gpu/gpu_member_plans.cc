// GpuMember: which plans on a buffer somebody still needs.
#include <cstddef>
#include <vector>

#include "client/src/gpu/gpu_member.h"

namespace arcomm::client {
namespace {

// Where the buffer is on both sides, both must be there: half an operation is none.
bool is_on_memory_there(const GpuPlanKey& key, BufferId buffer, const IsThere& is_there) {
  return (key.send_buffer != buffer || is_there(key.send, key.spec.send_bytes())) &&
         (key.recv_buffer != buffer || is_there(key.recv, key.spec.recv_bytes()));
}

}  // namespace

bool GpuMember::may_drop_plans_of(BufferId buffer, const IsThere& is_there, Deadline deadline) {
  const std::unique_lock lock(mutex_, deadline.when());
  return lock && nobody_needs_plans_of(buffer, is_there);
}

Result<bool> GpuMember::drop_unneeded_plans_of(BufferId buffer, const IsThere& is_there,
                                               Deadline deadline) {
  const std::unique_lock lock(mutex_, deadline.when());
  if (!lock) return other_thread_busy("preparing an operation of this communicator");
  if (!nobody_needs_plans_of(buffer, is_there)) return false;
  ARC_RETURN_IF_ERROR(drop(plans_.users_of(buffer), deadline));
  return true;
}

bool GpuMember::nobody_needs_plans_of(BufferId buffer, const IsThere& is_there) {
  std::vector<const GpuPlan*> asked;
  for (const GpuPlan* plan : plans_.users_of(buffer)) {
    if (!is_on_memory_there(plan->key, buffer, is_there)) continue;
    if (!plan->may_go()) return false;
    if (launched_[plan->id.index] != 0) asked.push_back(plan);
  }
  if (asked.empty()) return true;
  std::vector<std::byte> now(kMailboxWithNotesBytes);
  if (!parts_.gpu->read(now.data(), parts_.mailbox->words(), now.size(), kWordsWithin))
    return false;
  const auto* words = reinterpret_cast<const DeviceMailbox*>(now.data());
  const auto* notes = reinterpret_cast<const PostNotes*>(now.data() + kMailboxBytes);
  for (const GpuPlan* plan : asked) {
    const std::uint64_t done = words->paths[static_cast<std::uint32_t>(plan->path)].done;
    if (!has_ended(notes->plans[plan->id.index], launched_[plan->id.index], done)) return false;
  }
  return true;
}

}  // namespace arcomm::client
