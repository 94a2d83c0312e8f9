// One frame on its way in: finds the place of its bytes, checks them, hands them over. The part of
// receiving that is the same for every transport. What goes into no region that is there, and what
// was changed on its way, ends here and not the connection. Thread: the connection's.
#pragma once

#include <array>
#include <cstddef>
#include <memory>
#include <span>

#include "proto/net/frame.h"
#include "proto/status.h"
#include "transport/net/receiver.h"
#include "transport/net/regions.h"

namespace arcomm::net {

class Landing {
 public:
  // `regions` outlives the Landing.
  explicit Landing(Regions& regions) : regions_(regions) {}

  // Where the payload goes; nullptr: no room now, begin again. Precondition: no frame is begun, and
  // it is a Message, Chunk, Put or Signal.
  Result<std::byte*> begin(const FrameHeader& header, Receiver& receiver);
  // The bytes are at their place. Whatever the answer, the next frame may begin. Bytes that do not
  // fit their checksum are an error where they are a Message's: of a Put the region's owner is
  // told, of a Chunk the receiver.
  Status finish(Receiver& receiver);
  // The bytes will not come.
  void abandon(Receiver& receiver);

  bool has_begun() const { return place_ != nullptr; }

 private:
  std::byte* nowhere();

  Regions& regions_;
  FrameHeader header_;
  std::byte* place_ = nullptr;                                       // nullptr: none is begun
  Regions::Visit visit_;                                             // where it is a Put or Signal
  bool is_dropped_ = false;                                          // it goes nowhere
  std::unique_ptr<std::array<std::byte, kMostChunkBytes>> nowhere_;  // made when first wanted
};

}  // namespace arcomm::net
