// The members of one session that are still there: whose plans may use a buffer, and whose streams
// must hear when the daemon is gone. Thread: any. Ownership: their communicators'; a member that
// has gone is forgotten.
#pragma once

#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "client/src/gpu/gpu_member.h"

namespace arcomm::client {

class GpuMembers {
 public:
  void add(const std::shared_ptr<GpuMember>& member) {
    const std::lock_guard lock(mutex_);
    std::erase_if(members_, [](const auto& entry) { return entry.expired(); });
    members_.push_back(member);
  }

  std::vector<std::shared_ptr<GpuMember>> live() const {
    const std::lock_guard lock(mutex_);
    std::vector<std::shared_ptr<GpuMember>> live;
    for (const std::weak_ptr<GpuMember>& entry : members_) {
      if (std::shared_ptr<GpuMember> member = entry.lock()) live.push_back(std::move(member));
    }
    return live;
  }

 private:
  mutable std::mutex mutex_;
  std::vector<std::weak_ptr<GpuMember>> members_;
};

}  // namespace arcomm::client
