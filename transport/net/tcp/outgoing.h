// The frames that wait to go out over a TCP stream, in order; says which bytes come next. Knows no
// socket. Thread: the connection's.
#pragma once

#include <sys/uio.h>

#include <array>
#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "transport/net/connection.h"

namespace arcomm::net {

class Outgoing {
 public:
  static constexpr std::size_t kMostFrames = 128;
  static constexpr std::size_t kMostPieces = 32;

  Outgoing() : frames_(std::make_unique<std::array<Frame, kMostFrames>>()) {}

  // Numbers and seals the frame and takes it; false: no place is free. The payload stays the
  // caller's.
  bool push(Frame frame);
  // The last frame; no place is needed, and nothing is pushed after it.
  void push_goodbye(std::string_view why);

  // The next bytes, at most kMostPieces pieces of them, of the frames up to the `most`-th ever
  // pushed; empty: nothing waits.
  std::span<iovec> pieces(std::uint64_t most = ~std::uint64_t{0});
  // The first `count` bytes of pieces() were sent.
  void sent(std::size_t count);
  // Of all bytes ever sent the kernel has let go of so many.
  void release(std::uint64_t bytes);

  std::uint64_t pushed() const { return pushed_; }
  std::uint64_t sent_bytes() const { return sent_bytes_; }
  // The first so many frames were sent whole, and nobody reads them any more.
  std::uint64_t completed() const { return completed_; }
  // Nothing waits to be sent.
  bool is_empty() const { return pushed_ == sent_ && goodbye_.empty(); }
  bool has_goodbye() const { return !goodbye_.empty(); }

 private:
  const Frame& frame_at(std::uint64_t n) const { return (*frames_)[n % kMostFrames]; }
  std::size_t bytes_of(std::uint64_t n) const {
    return sizeof(FrameHeader) + frame_at(n).payload.size();
  }

  std::unique_ptr<std::array<Frame, kMostFrames>> frames_;
  // Frames; each has at most as many as the one before.
  std::uint64_t pushed_ = 0;
  std::uint64_t sent_ = 0;
  std::uint64_t completed_ = 0;
  std::size_t sent_of_first_ = 0;  // bytes of the frame that is being sent
  std::uint64_t sent_bytes_ = 0, completed_bytes_ = 0;
  std::string goodbye_;  // header and words
  std::array<iovec, kMostPieces> pieces_{};
};

}  // namespace arcomm::net
