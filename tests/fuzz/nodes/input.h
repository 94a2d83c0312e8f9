// The fuzzer's bytes as acts of the peer, and as what it spoils.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

namespace arcomm::fuzz {

// A byte that says what and where, and bytes.
struct Part {
  std::uint8_t what = 0;
  std::string_view bytes;
  // The next byte of it; 0 behind its end.
  std::uint8_t next() {
    if (bytes.empty()) return 0;
    const auto byte = static_cast<std::uint8_t>(bytes.front());
    bytes.remove_prefix(1);
    return byte;
  }
};
enum class Act : std::uint8_t { Bytes, Frame, Message, Offer, Window, Call, End, Control };

inline std::vector<Part> parts_of(const std::uint8_t* data, std::size_t size) {
  std::vector<Part> parts;
  const std::string_view all(reinterpret_cast<const char*>(data), size);
  for (std::size_t at = 0; at + 3 <= size && parts.size() < 48;) {
    const std::size_t length =
        std::min<std::size_t>(data[at + 1] + 256u * data[at + 2], size - at - 3);
    parts.push_back({data[at], all.substr(at + 3, length)});
    at += 3 + length;
  }
  return parts;
}

template <typename T>
void append(std::vector<std::byte>& bytes, const T& value) {
  const auto its = std::as_bytes(std::span(&value, 1));
  bytes.insert(bytes.end(), its.begin(), its.end());
}
// The value with the input's bytes over it, as far as they go.
template <typename T>
T spoilt(T value, Part& part) {
  const std::size_t most = std::min(part.bytes.size(), sizeof value);
  for (std::size_t i = 0; i < most; ++i) {
    // 0 leaves as it is: what is nearly right is more likely to come far.
    reinterpret_cast<unsigned char*>(&value)[i] ^= static_cast<unsigned char>(part.bytes[i]);
  }
  part.bytes.remove_prefix(most);
  return value;
}

}  // namespace arcomm::fuzz
