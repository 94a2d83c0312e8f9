// Who gets what arrives on a connection, other than puts and signals. Called from inside of
// Connection::progress(), on the thread that calls it.
#pragma once

#include <cstddef>
#include <span>

#include "proto/net/frame.h"
#include "proto/status.h"

namespace arcomm::net {

class Receiver {
 public:
  virtual ~Receiver() = default;

  // Where the `header.length` bytes of a Message or Chunk go; they may be written at once, and are
  // not to be believed before arrived(). nullptr: there is no room now. The connection then reads
  // no more, and asks again at each progress(). An error ends the connection with that reason.
  // Asked for frames of no bytes, too; their place is not written.
  virtual Result<std::byte*> place(const FrameHeader& header) = 0;
  // All bytes are there and their checksum is right. An error ends the connection.
  virtual Status arrived(const FrameHeader& header, std::span<const std::byte> payload) = 0;
  // A place that was given is not needed any more: the connection ended in the middle of the frame,
  // or the bytes do not fit their checksum. Of a Chunk the latter does not end the connection, and
  // the operation is to fail.
  virtual void abandoned(const FrameHeader& header) = 0;
};

}  // namespace arcomm::net
