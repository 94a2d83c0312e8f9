#include "transport/net/loopback/network.h"

#include <algorithm>
#include <cstring>

#include "transport/net/loopback/endpoint.h"

namespace arcomm::net {

const LoopbackNetwork::Weather& LoopbackNetwork::weather_of(const std::string& one,
                                                            const std::string& other) const {
  const auto found = between_.find(pair_of(one, other));
  return found == between_.end() ? everywhere_ : found->second;
}

LoopbackNetwork::Duration LoopbackNetwork::draw_delay(const std::string& one,
                                                      const std::string& other) {
  const Weather& weather = weather_of(one, other);
  const auto spread =
      static_cast<std::uint64_t>((weather.most_delay - weather.least_delay).count());
  // Not uniform_int_distribution, which differs from one standard library to the next.
  return weather.least_delay + Duration(static_cast<std::int64_t>(random_() % (spread + 1)));
}

void LoopbackNetwork::send(Direction& direction, const FrameHeader& header,
                           std::span<const std::byte> payload) {
  const Pair way{direction.from, direction.to};
  if (lose_.erase(way) != 0) return;
  Direction::Flight flight{.sent = now_, .arrives = {}, .bytes = {}};
  flight.bytes.resize(sizeof header + payload.size());
  std::memcpy(flight.bytes.data(), &header, sizeof header);
  if (!payload.empty())
    std::memcpy(flight.bytes.data() + sizeof header, payload.data(), payload.size());
  if (corrupt_.erase(way) != 0) flight.bytes[random_() % flight.bytes.size()] ^= std::byte{1};

  const double seconds = static_cast<double>(flight.bytes.size()) /
                         weather_of(direction.from, direction.to).bytes_per_second;
  const auto wire_time =
      std::chrono::duration_cast<Duration>(std::chrono::duration<double>(seconds));
  direction.busy_until = std::max(direction.busy_until, now_) + wire_time;
  flight.arrives = direction.busy_until + draw_delay(direction.from, direction.to);
  if (!direction.flights.empty())
    flight.arrives = std::max(flight.arrives, direction.flights.back().arrives);
  if (repeat_.erase(way) != 0) direction.flights.push_back(flight);
  direction.flights.push_back(std::move(flight));
}

const LoopbackNetwork::Direction::Flight* LoopbackNetwork::arrived(
    const Direction& direction) const {
  if (direction.flights.empty() || is_cut(direction.from, direction.to)) return nullptr;
  const Direction::Flight& flight = direction.flights.front();
  return flight.arrives <= now_ ? &flight : nullptr;
}

Result<Address> LoopbackNetwork::enter(LoopbackEndpoint& endpoint, Address address) {
  while (address.port == 0 || (endpoint_at(address) != nullptr && address.port == next_port_))
    address.port = ++next_port_;
  if (!endpoints_.emplace(address.to_string(), &endpoint).second)
    return error(ErrorCode::Unavailable, Reason::None, "cannot listen on ", address.to_string(),
                 ": it is in use");
  return address;
}

LoopbackEndpoint* LoopbackNetwork::endpoint_at(const Address& address) const {
  const auto found = endpoints_.find(address.to_string());
  return found == endpoints_.end() ? nullptr : found->second;
}

}  // namespace arcomm::net
