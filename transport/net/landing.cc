#include "transport/net/landing.h"

#include <utility>

#include "transport/net/sealing.h"

namespace arcomm::net {

Result<std::byte*> Landing::begin(const FrameHeader& header, Receiver& receiver) {
  if (header.kind == FrameKind::Put || header.kind == FrameKind::Signal) {
    auto visit = regions_.enter(header);
    if (!visit) return std::move(visit).error();
    visit_ = *std::move(visit);
    place_ = Regions::place_of(visit_, header);
  } else {
    auto place = receiver.place(header);
    if (!place || *place == nullptr) return place;
    place_ = *place;
  }
  header_ = header;
  return place_;
}

Status Landing::finish(Receiver& receiver) {
  const std::span<const std::byte> payload(std::exchange(place_, nullptr), header_.length);
  if (Status intact = check_payload(header_, payload); !intact) {
    if (!visit_) receiver.abandoned(header_);
    visit_ = {};
    return intact;
  }
  if (!visit_) return receiver.arrived(header_, payload);
  Regions::raise(visit_, header_);
  visit_ = {};
  return {};
}

void Landing::abandon(Receiver& receiver) {
  if (std::exchange(place_, nullptr) != nullptr && !visit_) receiver.abandoned(header_);
  visit_ = {};
}

}  // namespace arcomm::net
