#include "transport/net/landing.h"

#include <utility>

#include "transport/net/sealing.h"

namespace arcomm::net {

Result<std::byte*> Landing::begin(const FrameHeader& header, Receiver& receiver) {
  if (header.kind == FrameKind::Put || header.kind == FrameKind::Signal) {
    auto visit = regions_.enter(header);
    if (!visit) return std::move(visit).error();
    visit_ = *std::move(visit);
    is_dropped_ = !visit_;
    place_ = is_dropped_ ? nowhere() : Regions::place_of(visit_, header);
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
  if (std::exchange(is_dropped_, false)) return {};
  const Status intact = check_payload(header_, payload);
  if (const Regions::Visit visit = std::move(visit_)) {
    intact ? Regions::raise(visit, header_) : regions_.damage(visit, header_);
    return {};
  }
  if (intact) return receiver.arrived(header_, payload);
  receiver.abandoned(header_);
  return header_.kind == FrameKind::Message ? intact : Status();
}

void Landing::abandon(Receiver& receiver) {
  const bool is_receivers = place_ != nullptr && !is_dropped_ && !visit_;
  if (is_receivers) receiver.abandoned(header_);
  place_ = nullptr;
  is_dropped_ = false;
  visit_ = {};
}

std::byte* Landing::nowhere() {
  if (!nowhere_) nowhere_ = std::make_unique<std::array<std::byte, kMostChunkBytes>>();
  return nowhere_->data();
}

}  // namespace arcomm::net
