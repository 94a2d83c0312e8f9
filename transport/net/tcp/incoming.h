// The bytes of a TCP stream on their way to become frames: says where the next ones are to be read
// to, so that the payload of a chunk goes straight to its place, and takes apart what came. Knows
// no socket. Thread: the connection's.
#pragma once

#include <sys/uio.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "proto/net/frame.h"
#include "proto/status.h"
#include "transport/net/landing.h"
#include "transport/net/receiver.h"
#include "transport/net/regions.h"

namespace arcomm::net {

class Incoming {
 public:
  // `answer`: a Welcome with it comes before any other frame; none: the peer's Hello has come.
  Incoming(Regions& regions, std::optional<Secret> answer);

  // Where to read to, in this order; some may have no length. None has any while the receiver has
  // no room: then take() with 0 asks it again.
  std::array<iovec, 2> room();
  // The next `count` bytes are there. An error is the end of the stream: what the peer did wrong,
  // what the receiver said, or Aborted with the words of the peer's goodbye.
  Status take(std::size_t count, Receiver& receiver);
  // No more bytes will come: gives back the place of a frame that is half there.
  void abandon(Receiver& receiver) { landing_.abandon(receiver); }

  bool is_welcomed() const { return !answer_; }
  // Whether a frame waits for room at the receiver.
  bool is_held() const { return is_held_; }
  // Whether the rest of a frame is to come: an honest peer has it, and sends it.
  bool is_in_frame() const { return !is_held_ && (rest_bytes_ > 0 || end_ > begin_); }

 private:
  // A Goodbye lies in the buffer whole.
  static constexpr std::size_t kBufferBytes = 2 * (kMostMessageBytes + sizeof(FrameHeader));

  std::span<const std::byte> unread() const { return {buffer_->data() + begin_, end_ - begin_}; }
  // One frame, or the beginning of one, out of the buffer. False: it wants more bytes, or room.
  Result<bool> take_frame(Receiver& receiver);
  Result<bool> take_greeting(const FrameHeader& header);

  Landing landing_;
  std::optional<Secret> answer_;  // expected
  std::uint64_t next_number_;     // of the frame that comes next
  bool is_held_ = false;
  std::byte* rest_ = nullptr;   // where the rest of the payload goes
  std::size_t rest_bytes_ = 0;  // how much of it has not come
  std::unique_ptr<std::array<std::byte, kBufferBytes>> buffer_;
  std::size_t begin_ = 0, end_ = 0;  // what is not taken apart yet
};

}  // namespace arcomm::net
