#include "transport/net/sealing.h"

#include <isa-l/crc.h>

#include <cstring>

namespace arcomm::net {
namespace {

std::uint32_t checksum_of(const FrameHeader& header) {
  return crc32c(std::as_bytes(std::span(&header, 1)).first(offsetof(FrameHeader, header_crc)));
}

}  // namespace

std::uint32_t crc32c(std::span<const std::byte> bytes) {
  // The library takes bytes it does not change as non-const, and leaves both complements to us.
  auto* data = const_cast<unsigned char*>(reinterpret_cast<const unsigned char*>(bytes.data()));
  return ~crc32_iscsi(data, static_cast<int>(bytes.size()), ~0U);
}

void seal(FrameHeader& header, std::span<const std::byte> payload) {
  header.length = static_cast<std::uint32_t>(payload.size());
  header.payload_crc = payload.empty() ? 0 : crc32c(payload);
  header.header_crc = checksum_of(header);
}

Result<FrameHeader> open_header(std::span<const std::byte, sizeof(FrameHeader)> bytes) {
  FrameHeader header;
  std::memcpy(&header, bytes.data(), sizeof header);
  // First what says why the checksum cannot be right: another protocol, version or byte order.
  ARC_RETURN_IF_ERROR(check_header(header));
  if (const auto crc = checksum_of(header); crc != header.header_crc)
    return error(ErrorCode::DataLoss, Reason::Corrupt, "the header of a ", text_of(header.kind),
                 " frame was changed on the way (checksum 0x", std::hex, crc, ", sent 0x",
                 header.header_crc, ")");
  return header;
}

Status check_payload(const FrameHeader& header, std::span<const std::byte> payload) {
  const std::uint32_t crc = payload.empty() ? 0 : crc32c(payload);
  if (crc == header.payload_crc) return {};
  return error(ErrorCode::DataLoss, Reason::Corrupt, "the payload of a ", text_of(header.kind),
               " frame of ", header.length, " bytes was changed on the way (checksum 0x", std::hex,
               crc, ", sent 0x", header.payload_crc, ")");
}

}  // namespace arcomm::net
