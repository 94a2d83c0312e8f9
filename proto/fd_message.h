// The descriptor socket (fd.sock, SOCK_SEQPACKET): the one thing that gRPC cannot carry.
//
// A client connects, says which session it is (Hello with the token that Attach gave) and keeps the
// connection for the session's life: when it hangs up, the session ends. One request, one answer,
// in order.
//   Hello{session, token}            -> Answer{code}
//   Fetch{ticket}                    -> Answer{code, count} with `count` descriptors by SCM_RIGHTS
//   Offer{} with one descriptor      -> Answer{code, ticket}
// A message of another length, kind or descriptor count ends the connection.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <type_traits>

namespace arcomm {

inline constexpr std::uint32_t kFdMagic = 0x44464341;  // "ACFD"
inline constexpr std::size_t kTokenBytes = 16;
inline constexpr int kMaxFdsPerMessage = 16;

enum class FdMessageKind : std::uint32_t { Hello = 1, Fetch = 2, Offer = 3, Answer = 4 };

struct FdMessage {
  std::uint32_t magic = kFdMagic;
  FdMessageKind kind = FdMessageKind::Hello;
  std::uint64_t session = 0;                   // Hello
  std::array<std::byte, kTokenBytes> token{};  // Hello
  std::uint64_t ticket = 0;                    // Fetch; Answer to Offer
  std::uint32_t code = 0;                      // Answer: ErrorCode
  std::uint32_t reason = 0;                    // Answer: Reason
  std::uint32_t count = 0;                     // Answer to Fetch: descriptors attached
  std::uint32_t reserved = 0;
};
static_assert(sizeof(FdMessage) == 56 && std::is_trivially_copyable_v<FdMessage>);

}  // namespace arcomm
