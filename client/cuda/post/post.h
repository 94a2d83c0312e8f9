// What the host hands to the post kernel (post.cu): plain values, with addresses as the GPU sees
// them. The notes lie in the mailbox's memory behind its first kMailboxBytes, which the daemon
// never looks at.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "proto/gpu/device_mailbox.h"

namespace arcomm::client {

// Of one plan index: how often it was started, and with which number last. With the host's own
// count of starts it says whether the plan may still be needed by a start that is under way.
struct alignas(8) PlanNote {  // read and written whole
  std::uint32_t posted = 0;
  std::uint32_t number = 0;  // as in Doorbell::number
};

struct PostNotes {
  std::uint32_t left_early[kLaunchPaths] = {};  // starts that gave up waiting for their `done`
  std::uint32_t in_order[kLaunchPaths] =
      {};                            // starts that were StartOrder::Counted or StartOrder::Taken
  std::uint32_t in_stream_left = 0;  // InStreamCall::left
  // Numbers of the last starts by memory operations that their streams have left behind.
  std::uint32_t passed[kLaunchPaths] = {};
  PlanNote plans[kMaxDevicePlans];  // by PlanId::index
};

inline constexpr std::uint64_t kMailboxWithNotesBytes = kMailboxBytes + sizeof(PostNotes);
static_assert(std::is_standard_layout_v<PostNotes> && sizeof(PlanNote) == 8);

// In which order starts take their numbers. A graph's take them as they come. The others do so in
// the order of the calls, of which a single stream takes care; on several streams a start waits
// until as many have taken theirs as were called before it.
enum class StartOrder : std::uint32_t { AsItComes = 0, Counted = 1, Taken = 2 };

struct GpuPost {
  DeviceMailbox* mailbox = nullptr;
  HostDoorbells* doorbells = nullptr;
  PostNotes* notes = nullptr;
  LaunchPath path = LaunchPath::Resident;
  std::uint32_t plan = 0;        // PlanId::index
  std::uint64_t timeout_ns = 0;  // the operation's; the kernel waits kPostGraceNs longer
  StartOrder order = StartOrder::AsItComes;
  std::uint32_t called_before = 0;  // Taken: starts of this path, other than graphs'
  std::uint32_t identity = kNoIdentity;
};

// The daemon knows better why an operation was late: it gets the first word.
inline constexpr std::uint64_t kPostGraceNs = 100'000'000;
inline constexpr const char* kPostKernelName = "arcomm_post";
// One thread, behind a copy: adds one to the word that its argument points to.
inline constexpr const char* kCountKernelName = "arcomm_count";

}  // namespace arcomm::client
