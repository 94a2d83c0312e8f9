// The control plane's policy on memory that a client and the daemon share; how it is made and what
// may be mapped at all is transport's. Any thread.
//
// Whose memory it is: a page is charged to the control group of whose process touches it first.
// What a client has filled is the client's; what the daemon allocates for it, and what the daemon
// faults in because it was never filled, or was punched out again, is the daemon's. Therefore every
// buffer is reserved by its length (QuotaKind::HostBytes), and no client's control group is held
// more for than it may have itself (client_groups.h).
//
// What is not prevented: a client may mbind() the memfd, and then the kernel takes such pages from
// the nodes that the client named, full or not, also when the daemon is the one to touch them. No
// seal forbids it, and a policy that were looked at or reset here could be set again a moment
// later. It gains nothing that is not to be had without the daemon: no page more is taken than was
// reserved, by whatever policy; a user who wants the kernel to reclaim, or to kill, for lack of one
// node binds and touches its own pages. Where the node is full the kernel does kill for the
// daemon's fault, and OOMScoreAdjust=-500 of the unit makes it choose others first; a daemon
// started without was seen to be killed (faults/limits.cc). A far node slows the operations that
// use it. To have the daemon's threads run and allocate on some nodes alone, give the service a
// cpuset: its nodes bind every policy.
#pragma once

#include <cstdint>

#include "proto/status.h"
#include "transport/device/sealed_memory.h"

namespace arcomm {

// Whether a range of a descriptor offered by a client can become a buffer: mappable (PeerMapping's
// rule), and at whole pages.
Status check_offered_memory(int fd, std::uint64_t offset_bytes, std::uint64_t length_bytes);

struct MissingPages {
  std::uint64_t bytes = 0;            // that the range may still lack
  std::uint64_t available_bytes = 0;  // on the node, what is promised included
};
// ResourceExhausted unless they can be had besides what is promised to others, for the daemon would
// be the one to touch them. Reads files, so not on the control loop.
Result<MissingPages> check_missing_pages(int fd, std::uint64_t length_bytes,
                                         std::uint64_t promised);

}  // namespace arcomm
