// The name that the ranks of a communicator agree on beforehand: 128 random bytes.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>

namespace arcomm {

using UniqueIdBytes = std::array<std::byte, 128>;

inline std::uint64_t prefix_of(const UniqueIdBytes& id) {
  std::uint64_t prefix = 0;
  std::memcpy(&prefix, id.data(), sizeof(prefix));
  return prefix;
}

// The first `bytes` bytes in hexadecimal, in the order in which they are stored: how people see a
// communicator.
inline std::string short_name(const UniqueIdBytes& id, std::size_t bytes = 8) {
  static constexpr char kDigits[] = "0123456789abcdef";
  std::string name;
  for (std::size_t i = 0; i < bytes; ++i) {
    const auto value = static_cast<unsigned>(id[i]);
    name += kDigits[value >> 4];
    name += kDigits[value & 15];
  }
  return name;
}

}  // namespace arcomm
