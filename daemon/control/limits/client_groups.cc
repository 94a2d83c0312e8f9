#include "daemon/control/limits/client_groups.h"

#include <algorithm>
#include <utility>

#include "proto/text.h"

namespace arcomm {
namespace {

constexpr std::size_t kNamedBytes = 256;  // of a group, in a refusal

}  // namespace

Result<GroupChargePtr> ClientGroups::charge(const std::vector<MemoryGroup>& groups,
                                            std::uint64_t bytes) {
  std::vector<std::string> folders;
  for (const MemoryGroup& group : groups) {
    const std::uint64_t held_before = held(group.folder);
    const std::uint64_t free = group.most_bytes - std::min(group.most_bytes, held_before);
    if (bytes > free) {
      return error(ErrorCode::ResourceExhausted, Reason::OutOfMemory, "the control group ",
                   safe_text(group.folder, kNamedBytes), " of this process may have ",
                   group.most_bytes, " bytes of memory, the daemon holds ", held_before,
                   " for the processes in it, and ", bytes,
                   " more would be above its limit: release some, or have the limit raised");
    }
    folders.push_back(group.folder);
  }
  for (const std::string& folder : folders) held_[folder] += bytes;
  return std::make_shared<GroupCharge>(*this, std::move(folders), bytes);
}

std::uint64_t ClientGroups::held(const std::string& folder) const {
  const auto found = held_.find(folder);
  return found == held_.end() ? 0 : found->second;
}

GroupCharge::~GroupCharge() {
  for (const std::string& folder : folders_) {
    const auto found = book_.held_.find(folder);
    if ((found->second -= bytes_) == 0) book_.held_.erase(found);
  }
}

}  // namespace arcomm
