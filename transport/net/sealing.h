// The checksums of a frame: CRC32C, of the header and of the payload. Any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "proto/net/frame.h"
#include "proto/status.h"

namespace arcomm::net {

// CRC32C (Castagnoli; RFC 3720, appendix B.4) of the bytes.
std::uint32_t crc32c(std::span<const std::byte> bytes);

// Fills length and both checksums. Precondition: the number is set, and the payload is no longer
// than the kind allows.
void seal(FrameHeader& header, std::span<const std::byte> payload);

// A header as it came: its checksum, then check_header.
Result<FrameHeader> open_header(std::span<const std::byte, sizeof(FrameHeader)> bytes);
// Precondition: payload.size() == header.length.
Status check_payload(const FrameHeader& header, std::span<const std::byte> payload);

}  // namespace arcomm::net
