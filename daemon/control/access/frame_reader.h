// Follows the frames that one side sends on an HTTP/2 connection (RFC 9113) while its bytes pass
// by: whether it speaks HTTP/2 at all, whether it is in the middle of something, and how many
// frames of which cost have come. It keeps counters and no bytes, and leaves what frames mean to
// gRPC. What it is fed is a stranger's, unless the side is our server, which is held to nothing.
// Thread: one at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "daemon/control/access/open_calls.h"
#include "proto/status.h"

namespace arcomm {

// Frames by what they cost whoever reads on.
struct FrameCounts {
  std::uint64_t calls = 0;   // HEADERS: a call, or the end of one
  std::uint64_t resets = 0;  // RST_STREAM: a call that was begun for nothing
  // What is neither a call nor its bytes, and may be sent without end: SETTINGS, PING,
  // CONTINUATION, WINDOW_UPDATE, empty DATA, and so on.
  std::uint64_t others = 0;
};

class FrameReader {
 public:
  enum class Side : std::uint8_t { Client, Server };
  static constexpr std::string_view kPreface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
  // SETTINGS_MAX_FRAME_SIZE where nothing else is announced, and the daemon announces nothing else.
  static constexpr std::size_t kMostFrameBytes = 16'384;
  // Of the HEADERS of one call with its CONTINUATIONs, which nobody may read before the last.
  static constexpr std::size_t kMostHeaderBytes = 32'768;

  // calls: hears of each that begins or ends; outlives this. Both sides' readers share one.
  explicit FrameReader(Side side = Side::Client, OpenCalls* calls = nullptr)
      : side_(side), calls_(calls), preface_(side == Side::Client ? 0 : kPreface.size()) {}

  // The next bytes, in any pieces. An Error: no client of ours sends that; nothing that follows
  // means anything.
  Status read(std::span<const std::byte> bytes);

  bool prefaced() const { return preface_ == kPreface.size(); }  // the preface has come
  bool greeted() const { return frames_ > 0; }                   // and the first frame, SETTINGS
  // Something has begun and not ended: the rest is owed.
  bool in_frame() const { return left_ > 0 || header_ > 0 || (preface_ > 0 && !prefaced()); }
  std::uint64_t frames() const { return frames_; }       // ended so far
  const FrameCounts& counts() const { return counts_; }  // begun so far

 private:
  static constexpr std::size_t kHeaderBytes = 9;

  Status begin_frame();
  void count_frame();
  void follow_call();
  Status check_header_block();

  Side side_;
  OpenCalls* calls_;
  std::size_t preface_;     // bytes of it that have come
  std::size_t header_ = 0;  // of the header of the frame that begins
  std::size_t left_ = 0;    // of the frame's payload, to come
  std::uint32_t length_ = 0, stream_ = 0;
  std::uint8_t type_ = 0, flags_ = 0;
  std::size_t header_block_ = 0;  // bytes of a call's headers that do not end yet
  std::uint64_t frames_ = 0;
  FrameCounts counts_;
};

}  // namespace arcomm
