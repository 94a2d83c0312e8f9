#include "client/src/host/rings/session_rings.h"

#include <algorithm>
#include <utility>

namespace arcomm::client {

SessionRings::SessionRings(ring::Segment segment, UniqueFd doorbell, std::uint32_t most_in_flight)
    : segment_(std::move(segment)),
      doorbell_fd_(std::move(doorbell)),
      doorbell_(segment_.control().requests.consumer_sleeps, doorbell_fd_.get()),
      most_in_flight_(most_in_flight == 0 ? segment_.slots()
                                          : std::min(most_in_flight, segment_.slots())),
      requests_(segment_.requests()),
      completions_(segment_.completions()),
      entries_(most_in_flight_) {
  for (std::uint32_t i = most_in_flight_; i-- > 0;) free_.push_back(i);
}

ring::Push SessionRings::send(const ring::WorkRequest& request, const InFlight& what) {
  if (const ring::Push pushed = requests_.push(request); pushed != ring::Push::Done) return pushed;
  doorbell_.ring();
  Entry& entry = entries_[free_.back()];
  free_.pop_back();
  entry.generation = static_cast<std::uint32_t>(request.ticket >> 32);
  entry.what = what;
  ++what.member->in_flight;
  ++what.operation->outstanding;
  return ring::Push::Done;
}

ring::Push SessionRings::send_aside(const ring::WorkRequest& request) {
  const ring::Push pushed = requests_.push(request);
  if (pushed == ring::Push::Done) doorbell_.ring();
  return pushed;
}

void SessionRings::take_each(const std::function<void(const InFlight&)>& taken) {
  for (std::uint32_t i = 0; i < most_in_flight_; ++i) {
    if (entries_[i].what.operation != nullptr) taken(take_entry(i));
  }
}

}  // namespace arcomm::client
