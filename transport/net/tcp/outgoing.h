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

  // Seals the frame and takes it; false: no place is free. The payload stays the caller's.
  bool push(Frame frame);
  // The last frame; no place is needed, and nothing is pushed after it.
  void push_goodbye(std::string_view why);

  // The next bytes, at most kMostPieces pieces of them, of the frames up to the `most`-th ever
  // pushed; empty: nothing waits.
  std::span<iovec> pieces(std::uint64_t most = ~std::uint64_t{0});
  // The first `count` bytes of pieces() were sent.
  void sent(std::size_t count);

  std::uint64_t pushed() const { return pushed_; }
  // The first so many frames were sent whole.
  std::uint64_t completed() const { return completed_; }
  bool is_empty() const { return pushed_ == completed_ && goodbye_.empty(); }

 private:
  const Frame& frame_at(std::uint64_t n) const { return (*frames_)[n % kMostFrames]; }

  std::unique_ptr<std::array<Frame, kMostFrames>> frames_;
  std::uint64_t pushed_ = 0;
  std::uint64_t completed_ = 0;
  std::size_t sent_of_first_ = 0;  // bytes of the frame that is being sent
  std::string goodbye_;            // header and words
  std::array<iovec, kMostPieces> pieces_{};
};

}  // namespace arcomm::net
