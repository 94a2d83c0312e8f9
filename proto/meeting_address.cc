#include "proto/meeting_address.h"

#include <algorithm>
#include <cstring>

namespace arcomm {
namespace {

constexpr std::string_view kMark = "ARCNODE1";
constexpr std::size_t kMarkAt = 64;
constexpr std::size_t kLengthAt = kMarkAt + kMark.size();
constexpr std::size_t kAddressAt = kLengthAt + 1;

// Host names, IPv4 and IPv6 with a scope, and the port.
bool is_of_address(char c) {
  return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
         std::string_view(".:[]-_%").find(c) != std::string_view::npos;
}

bool is_address(std::string_view text) {
  return !text.empty() && text.size() <= kMostMeetingAddressBytes &&
         std::ranges::all_of(text, is_of_address) && text.find(':') != std::string_view::npos;
}

}  // namespace

std::string_view meeting_address(std::span<const std::byte, 128> id) {
  const std::string_view bytes(reinterpret_cast<const char*>(id.data()), id.size());
  if (bytes.substr(kMarkAt, kMark.size()) != kMark) return {};
  const auto length = std::to_integer<std::size_t>(id[kLengthAt]);
  if (length > kMostMeetingAddressBytes) return {};
  const std::string_view address = bytes.substr(kAddressAt, length);
  return is_address(address) ? address : std::string_view();
}

void write_meeting_address(std::span<std::byte, 128> id, std::string_view address) {
  if (!is_address(address)) return;
  std::memcpy(id.data() + kMarkAt, kMark.data(), kMark.size());
  id[kLengthAt] = static_cast<std::byte>(address.size());
  std::memcpy(id.data() + kAddressAt, address.data(), address.size());
}

}  // namespace arcomm
