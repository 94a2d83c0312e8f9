// A member's mailbox (proto/gpu/device_mailbox.h) as its client has it: the daemon's GPU memory and
// the daemon's doorbells, both mapped. Thread: none of its own. Owns the mappings.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "client/cuda/gpu.h"
#include "client/cuda/post/post.h"
#include "proto/gpu/device_mailbox.h"
#include "proto/shared_mapping.h"
#include "proto/status.h"
#include "proto/unique_fd.h"

namespace arcomm::client {

// How long the host waits for a few words from the GPU.
inline constexpr std::chrono::milliseconds kWordsWithin{50};

// The beginning of a mailbox's memory with the notes' counts: all but what is kept for each plan.
struct MailboxCounts {
  DeviceMailbox words;
  std::byte rest[kMailboxBytes - sizeof(DeviceMailbox)];
  std::uint32_t left_early[kLaunchPaths];
  std::uint32_t in_order[kLaunchPaths];
  std::uint32_t in_stream_left;
  std::uint32_t passed[kLaunchPaths];
};
static_assert(offsetof(MailboxCounts, left_early) ==
                  kMailboxBytes + offsetof(PostNotes, left_early) &&
              offsetof(MailboxCounts, in_order) == kMailboxBytes + offsetof(PostNotes, in_order) &&
              offsetof(MailboxCounts, in_stream_left) ==
                  kMailboxBytes + offsetof(PostNotes, in_stream_left) &&
              offsetof(MailboxCounts, passed) == kMailboxBytes + offsetof(PostNotes, passed));

class GpuMailbox {
 public:
  // Clears the notes, which the daemon leaves alone.
  static Result<std::unique_ptr<GpuMailbox>> open(Gpu& gpu, UniqueFd memory,
                                                  std::uint64_t memory_bytes, UniqueFd doorbells);
  GpuMailbox(const GpuMailbox&) = delete;
  GpuMailbox& operator=(const GpuMailbox&) = delete;

  // As the GPU sees them.
  DeviceMailbox* words() const { return static_cast<DeviceMailbox*>(memory_->address()); }
  PostNotes* notes() const {
    return reinterpret_cast<PostNotes*>(static_cast<std::byte*>(memory_->address()) +
                                        kMailboxBytes);
  }
  // As they were a moment ago; within kWordsWithin.
  Status read_counts(Gpu& gpu, MailboxCounts& now) const {
    return gpu.read(&now, words(), sizeof(now), kWordsWithin);
  }
  // As this process sees them.
  HostPages& host_pages() const { return *reinterpret_cast<HostPages*>(doorbells_.data()); }
  HostDoorbells* doorbells() const {
    return static_cast<HostDoorbells*>(doorbells_on_gpu_->address());
  }

 private:
  GpuMailbox() = default;

  std::unique_ptr<GpuMapping> memory_;
  SharedMapping doorbells_;
  std::unique_ptr<GpuMapping> doorbells_on_gpu_;  // of doorbells_, which it must not outlive
};

// "of rank 1: the deadline passed", with the Done's code, reason and culprit. Ok for 0.
Error error_of(std::uint64_t done_word, const char* what);

}  // namespace arcomm::client
