// Memory that the daemon has allocated for this session, on its way to the caller: what does not
// get there is released, so that it does not count against the quota for the session's life.
// Thread: any one at a time. control, descriptors and key outlive it.
#pragma once

#include <cstddef>
#include <string_view>
#include <utility>

#include "client/src/control/fd_channel.h"
#include "client/src/control/node_control.h"
#include "client/src/session/deadline.h"
#include "proto/status.h"
#include "proto/types.h"
#include "proto/unique_fd.h"

namespace arcomm::client {

class NewAllocation {
 public:
  // device: "GPU-<uuid>", or "" for the host's memory. At least `bytes`.
  static Result<NewAllocation> of(NodeControl& control, FdChannel& descriptors,
                                  const SessionKey& key, std::size_t bytes, std::string_view device,
                                  Deadline deadline);
  NewAllocation(NewAllocation&& other) noexcept
      : control_(std::exchange(other.control_, nullptr)),
        key_(other.key_),
        id_(other.id_),
        bytes_(other.bytes_),
        memory_(std::move(other.memory_)) {}
  NewAllocation& operator=(NewAllocation&&) = delete;
  ~NewAllocation();

  BufferId id() const { return id_; }
  std::size_t bytes() const { return bytes_; }
  int memory() const { return memory_.get(); }
  UniqueFd take_memory() { return std::move(memory_); }
  // It is the caller's from now on.
  void keep() { control_ = nullptr; }

 private:
  NewAllocation(NodeControl& control, const SessionKey& key, const SharedBuffer& shared)
      : control_(&control), key_(key), id_(shared.buffer), bytes_(shared.length_bytes) {}

  NodeControl* control_;  // null: nothing is to be released
  const SessionKey& key_;
  BufferId id_;
  std::size_t bytes_ = 0;
  UniqueFd memory_;
};

}  // namespace arcomm::client
