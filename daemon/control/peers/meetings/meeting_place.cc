#include "daemon/control/peers/meetings/meeting_place.h"

#include <algorithm>
#include <cstdint>
#include <string_view>
#include <utility>

#include "proto/meeting_address.h"

namespace arcomm {
namespace {

// FNV-1a with a last mix (splitmix64): the same in every build, unlike std::hash.
std::uint64_t weight_of(const UniqueIdBytes& unique_id, std::string_view address) {
  std::uint64_t hash = 0xcbf29ce484222325;
  const auto add = [&hash](std::uint8_t byte) { hash = (hash ^ byte) * 0x100000001b3; };
  for (const std::byte byte : unique_id) add(std::to_integer<std::uint8_t>(byte));
  for (const char c : address) add(static_cast<std::uint8_t>(c));
  hash = (hash ^ (hash >> 30)) * 0xbf58476d1ce4e5b9;
  hash = (hash ^ (hash >> 27)) * 0x94d049bb133111eb;
  return hash ^ (hash >> 31);
}

}  // namespace

std::string meeting_place(const UniqueIdBytes& unique_id,
                          const std::vector<std::string>& addresses) {
  if (const std::string_view carried = meeting_address(unique_id); !carried.empty())
    return std::string(carried);
  std::pair<std::uint64_t, std::string_view> best{0, {}};
  for (const std::string& address : addresses)
    best = std::max(best, std::pair(weight_of(unique_id, address), std::string_view(address)));
  return std::string(best.second);
}

}  // namespace arcomm
