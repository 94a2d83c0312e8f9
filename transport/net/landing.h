// One frame on its way in: finds the place of its bytes, checks them, hands them over. The part of
// receiving that is the same for every transport. Thread: the connection's.
#pragma once

#include <cstddef>
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
  // The bytes are at their place. Whatever the answer, the next frame may begin.
  Status finish(Receiver& receiver);
  // The bytes will not come.
  void abandon(Receiver& receiver);

  bool has_begun() const { return place_ != nullptr; }

 private:
  Regions& regions_;
  FrameHeader header_;
  std::byte* place_ = nullptr;  // nullptr: none is begun
  Regions::Visit visit_;        // where it is a Put or Signal
};

}  // namespace arcomm::net
