// What travels between two daemons over a data connection: frames, each a header of 72 bytes and a
// payload. Little-endian. The header carries two CRC32Cs (transport/net/sealing.h). One that was
// changed on the way ends the connection, as a Message's payload does; a Put's or Chunk's payload,
// which may be sent from memory that a client can write, is given up alone. The header also carries
// the frame's number on its stream, each way from 0: one that comes again, too early or too late
// ends the connection, for it would raise a signal twice, or one that others were to come before.
// Nothing here is secret: who may connect is settled by the Hello (below), what follows is not
// encrypted.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "proto/status.h"

namespace arcomm::net {

inline constexpr std::uint32_t kFrameMagic = 0x46435241;  // "ARCF"
inline constexpr std::uint8_t kWireVersion = 2;
inline constexpr std::size_t kMostMessageBytes = std::size_t{16} << 10;
inline constexpr std::size_t kMostChunkBytes = std::size_t{128} << 10;

// X(name, number, text). Numbers never change within a wire version.
#define ARC_FRAME_KINDS(X)                                                                 \
  X(Hello, 1, "hello")     /* the first frame of a connection: payload is a HelloKey */    \
  X(Welcome, 2, "welcome") /* the answer to it: payload is a Secret, of who was meant */   \
  X(Message, 3, "message") /* at most kMostMessageBytes, for the peer's worker */          \
  X(Chunk, 4, "chunk")     /* a part of an operation's data; its receiver says where to */ \
  X(Put, 5, "put")         /* bytes for `offset` of the peer's memory `region` */          \
  X(Signal, 6, "signal")   /* adds `add` to signal `signal` of `region`; no payload */     \
  X(Goodbye, 7, "goodbye") /* the last frame: payload is why, for people */

enum class FrameKind : std::uint8_t {
#define X(name, number, text) name = number,
  ARC_FRAME_KINDS(X)
#undef X
};
std::string_view text_of(FrameKind kind);

struct FrameHeader {
  std::uint32_t magic = kFrameMagic;
  std::uint8_t version = kWireVersion;
  FrameKind kind = FrameKind::Message;
  std::uint16_t flags = 0;         // 0: no flag has a meaning yet
  std::uint64_t number = 0;        // of the frame on its stream, this way; 0: hello or welcome
  std::uint64_t communicator = 0;  // what the peers agreed to call it
  std::uint32_t epoch = 0;         // of the communicator; of another one: stale
  std::uint32_t length = 0;        // bytes of payload
  std::uint64_t seq = 0;           // of the communicator's operation
  std::uint64_t offset = 0;        // bytes, within the operation's data or the region
  std::uint64_t region = 0;        // RegionId (transport/net/regions.h); 0: none
  std::uint32_t signal = 0;        // index of the region's signals
  std::uint32_t add = 0;           // Put: 0 raises no signal
  std::uint32_t payload_crc = 0;
  std::uint32_t header_crc = 0;  // of the 68 bytes before it
};
static_assert(sizeof(FrameHeader) == 72);

// Made by the control plane of the daemon that is connected to, which tells the other two for each
// connection: one to show, one to expect. So both know that the connection was arranged.
using Secret = std::array<std::byte, 32>;

struct HelloKey {
  Secret key{};
  std::uint32_t stream = 0;  // which of the pair's connections this is
  std::uint32_t rail = 0;    // over which pair of interfaces
};
static_assert(sizeof(HelloKey) == 40);

// Everything but checksums and number. DataLoss/Corrupt for what is no frame, Unimplemented/Version
// for a frame of another version or byte order; the message names the field and its value.
Status check_header(const FrameHeader& header);
// DataLoss/Corrupt, naming both, where the frame is not the one that comes next on its stream.
Status check_number(const FrameHeader& header, std::uint64_t expected);

}  // namespace arcomm::net
