// What the daemon holds of the host's memory for the processes of a control group: no more than the
// group itself may have. Pages are charged to whose process touches them first, so that what the
// daemon allocates for a client, or faults in again because the client punched it out of its
// memory, would else be a way out of the client's own limit. A limit binds all groups below it,
// however they are divided. Thread: the control loop.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "proto/status.h"
#include "transport/device/memory_groups.h"

namespace arcomm {

class GroupCharge;

class ClientGroups {
 public:
  // Gives back with its destruction. It must not outlive this. ResourceExhausted/OutOfMemory that
  // names the group, its limit and what is held for it. groups: as the client's process has them.
  Result<std::shared_ptr<GroupCharge>> charge(const std::vector<MemoryGroup>& groups,
                                              std::uint64_t bytes);
  // Of the group with this folder.
  std::uint64_t held(const std::string& folder) const;

 private:
  friend class GroupCharge;

  std::unordered_map<std::string, std::uint64_t> held_;  // by folder; none is 0
};

class GroupCharge {
 public:
  GroupCharge(ClientGroups& book, std::vector<std::string> folders, std::uint64_t bytes)
      : book_(book), folders_(std::move(folders)), bytes_(bytes) {}
  ~GroupCharge();
  GroupCharge(const GroupCharge&) = delete;
  GroupCharge& operator=(const GroupCharge&) = delete;

 private:
  ClientGroups& book_;
  std::vector<std::string> folders_;
  std::uint64_t bytes_;
};

// Shared because it travels in callbacks, which are copyable; it has one owner at a time.
using GroupChargePtr = std::shared_ptr<GroupCharge>;

}  // namespace arcomm
