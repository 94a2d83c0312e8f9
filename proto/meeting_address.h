// Where a communicator's nodes meet: the address of the daemon that the maker of its unique id was
// attached to, in the id. Bytes 64 to 71 are "ARCNODE1", the next one is the address' length, the
// address follows ("10.0.0.1:7400"); all others are random. An id is a stranger's bytes: what is
// read from it is bounded and printable, and no more. Any thread.
#pragma once

#include <cstddef>
#include <span>
#include <string_view>

namespace arcomm {

inline constexpr std::size_t kMostMeetingAddressBytes = 128 - 64 - 8 - 1;

// "" where the id carries none. Points into the id.
std::string_view meeting_address(std::span<const std::byte, 128> id);
// The id stays as it is where the address is empty, too long, or no address.
void write_meeting_address(std::span<std::byte, 128> id, std::string_view address);

}  // namespace arcomm
