#include "client/src/control/new_allocation.h"

#include <chrono>
#include <vector>

namespace arcomm::client {
namespace {

// The deadline that it was asked for under may be what made it fail.
constexpr std::chrono::milliseconds kReleaseFor{20};

}  // namespace

Result<NewAllocation> NewAllocation::of(NodeControl& control, FdChannel& descriptors,
                                        const SessionKey& key, std::size_t bytes,
                                        std::string_view device, Deadline deadline) {
  const Result<SharedBuffer> shared = control.allocate_buffer(key, bytes, device, deadline);
  if (!shared) return shared.error();
  NewAllocation made(control, key, *shared);
  Result<std::vector<UniqueFd>> memory = descriptors.fetch(shared->fd_ticket, 1, deadline);
  if (!memory) return std::move(memory).error();
  if (shared->length_bytes < bytes) {  // touching what is not there would raise SIGBUS
    return error(ErrorCode::Internal, Reason::Corrupt, "the daemon was asked for ", bytes,
                 " bytes and gave ", shared->length_bytes);
  }
  made.memory_ = std::move((*memory)[0]);
  return made;
}

NewAllocation::~NewAllocation() {
  if (control_ == nullptr) return;
  static_cast<void>(control_->release_buffer(key_, id_, Deadline::after(kReleaseFor)));
}

}  // namespace arcomm::client
