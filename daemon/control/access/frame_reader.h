// Follows the frames that a client sends on an HTTP/2 connection (RFC 9113) while its bytes pass
// by: whether it speaks HTTP/2 at all, and whether it is in the middle of something. It keeps
// counters and no bytes, and leaves what frames mean to gRPC. What it is fed is a stranger's.
// Thread: one at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "proto/status.h"

namespace arcomm {

class FrameReader {
 public:
  static constexpr std::string_view kPreface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
  // SETTINGS_MAX_FRAME_SIZE where nothing else is announced, and the daemon announces nothing else.
  static constexpr std::size_t kMostFrameBytes = 16'384;

  // The next bytes, in any pieces. An Error: no client of ours sends that; nothing that follows
  // means anything.
  Status read(std::span<const std::byte> bytes);

  bool prefaced() const { return preface_ == kPreface.size(); }  // the preface has come
  bool greeted() const { return frames_ > 0; }                   // and the first frame, SETTINGS
  // Something has begun and not ended: the rest is owed.
  bool in_frame() const { return left_ > 0 || header_ > 0 || (preface_ > 0 && !prefaced()); }
  std::uint64_t frames() const { return frames_; }  // ended so far

 private:
  static constexpr std::size_t kHeaderBytes = 9;

  Status begin_frame();

  std::size_t preface_ = 0;  // bytes of it that have come
  std::size_t header_ = 0;   // of the header of the frame that begins
  std::size_t left_ = 0;     // of the frame's payload, to come
  std::uint32_t length_ = 0;
  std::uint8_t type_ = 0;
  std::uint64_t frames_ = 0;
};

}  // namespace arcomm
