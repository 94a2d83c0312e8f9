#include "proto/net/frame.h"

#include <bit>

namespace arcomm::net {
namespace {

static_assert(std::endian::native == std::endian::little, "frames are sent as they lie in memory");

constexpr std::uint32_t reversed(std::uint32_t word) {
  return word >> 24 | (word >> 8 & 0xff00) | (word << 8 & 0xff0000) | word << 24;
}

Error corrupt(const auto&... parts) {
  return error(ErrorCode::DataLoss, Reason::Corrupt, parts...);
}

Status check_length(const FrameHeader& header, std::size_t least, std::size_t most) {
  if (header.length >= least && header.length <= most) return {};
  return corrupt("a ", text_of(header.kind), " frame of ", header.length, " bytes (", least, " to ",
                 most, " are allowed)");
}

}  // namespace

std::string_view text_of(FrameKind kind) {
  switch (kind) {
#define X(name, number, text) \
  case FrameKind::name:       \
    return text;
    ARC_FRAME_KINDS(X)
#undef X
  }
  return "unknown";
}

Status check_header(const FrameHeader& header) {
  if (header.magic == reversed(kFrameMagic))
    return error(ErrorCode::Unimplemented, Reason::Version,
                 "the peer sends in another byte order: both daemons must run on little-endian "
                 "machines");
  if (header.magic != kFrameMagic)
    return corrupt("no frame of arcommd's (it begins with 0x", std::hex, header.magic, ")");
  if (header.version != kWireVersion)
    return error(ErrorCode::Unimplemented, Reason::Version, "the peer speaks wire version ",
                 unsigned{header.version}, " and this daemon ", unsigned{kWireVersion},
                 ": run the same version of arcommd on both nodes");
  if (header.flags != 0) return corrupt("a frame with unknown flags 0x", std::hex, header.flags);
  const auto kind = header.kind;
  const bool names_region = kind == FrameKind::Put || kind == FrameKind::Signal;
  if (!names_region && (header.region != 0 || header.signal != 0 || header.add != 0))
    return corrupt("a ", text_of(kind), " frame that names a region or signal");
  switch (kind) {
    case FrameKind::Hello:
      return check_length(header, sizeof(HelloKey), sizeof(HelloKey));
    case FrameKind::Welcome:
      return check_length(header, sizeof(Secret), sizeof(Secret));
    case FrameKind::Message:
    case FrameKind::Goodbye:
      return check_length(header, 0, kMostMessageBytes);
    case FrameKind::Chunk:
    case FrameKind::Put:
      return check_length(header, 0, kMostChunkBytes);
    case FrameKind::Signal:
      return check_length(header, 0, 0);
  }
  return corrupt("a frame of unknown kind ", static_cast<unsigned>(kind));
}

Status check_number(const FrameHeader& header, std::uint64_t expected) {
  if (header.number == expected) return {};
  return corrupt("frame ", header.number, " of the stream (a ", text_of(header.kind),
                 ") came where frame ", expected, " was expected: ",
                 header.number < expected ? "it was repeated" : "frames were lost or overtaken");
}

}  // namespace arcomm::net
