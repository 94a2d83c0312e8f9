// What is in a Message frame (frame.h): a MessageHead, a body by kind, and bytes where the body
// says so. Little-endian. The frame names communicator, epoch and seq; both sides check that the
// communicator is theirs and every field here, for a peer may be of another version or broken.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string_view>

#include "proto/gpu/captured_identity.h"
#include "proto/net/frame.h"
#include "proto/operation_spec.h"
#include "proto/status.h"

namespace arcomm::net {

enum class MessageKind : std::uint16_t {
  Offer = 1,    // all ranks of the node have called `seq`: OfferBody, then inline data
  Refused = 2,  // `seq` ends with an error on all nodes: FailureBody
  Revoked = 3,  // the communicator ends: FailureBody
  Left = 4,     // a rank has left in good order, nothing runs from `seq` on: FailureBody
  Waiting = 5,  // some ranks of the node have called `seq`, and wait since 10 ms: WaitingBody
  // The executor's own (daemon/exec/net/network_executor.h).
  Window = 16,  // WindowBody: where this peer's chunks go
  Ready = 17,   // ReadyBody: where results of `seq` go
  // Between GPUs, without a body (daemon/exec/gpu/network/node_places.h).
  Placed = 18,    // the node has a place for all operations before `seq`
  Recall = 19,    // it asks that promise back, for those that have not begun; before `seq` it has
  Recalled = 20,  // the answer: those before `seq` have
};

std::string_view text_of(MessageKind kind);

struct MessageHead {
  MessageKind kind = MessageKind::Offer;
  std::uint16_t zero = 0;
  std::uint32_t bytes = 0;  // of body and data
};
static_assert(sizeof(MessageHead) == 8);

// What the ranks of one operation agree on (Signature in daemon/plan/operation.h), field by field.
struct OfferBody {
  std::uint64_t send_count = 0, recv_count = 0, total_count = 0, first_element = 0;
  // Until the earliest deadline of the node's ranks, never an instant; 0: it has passed. What the
  // receiver does with it: daemon/exec/net/agreement/node_agreement.h.
  std::uint64_t remaining_ns = 0;
  std::int32_t root = 0;
  std::int32_t first_rank = 0;  // that called it there
  std::uint32_t identity = 0;   // proto/gpu/captured_identity.h
  std::uint32_t inline_bytes = 0;
  std::uint8_t collective = 0, dtype = 0, op = 0, codec = 0;
  std::uint16_t is_placed = 0;  // 1: as a Placed of this `seq` and one more
  std::uint16_t zero = 0;
  // Between GPUs: grows with each offer of a node, and is above all that it has seen. The highest
  // of an operation says how old it is, on all nodes alike. 0: between hosts nobody asks.
  std::uint64_t turn = 0;
};
static_assert(sizeof(OfferBody) == 72);

struct FailureBody {
  std::int32_t code = 0, reason = 0, culprit = -1;
  std::uint32_t zero = 0;
  std::array<char, 128> text{};  // zero-terminated, safe text
};
static_assert(sizeof(FailureBody) == 144);

// Then the pid of each seat's process, an int32 each, 0 where it is not known.
struct WaitingBody {
  std::uint64_t called = 0;    // bit s: the node's seat s has called
  std::uint64_t since_ns = 0;  // how long ago the first one did
  std::uint32_t seats = 0;     // of the node
  std::uint32_t zero = 0;
};
static_assert(sizeof(WaitingBody) == 24);

// Slots of equal size, one behind the other, in a region of the sender of this message. A slot may
// be written when its signal in the writer's own window says that it is free: network_executor.h.
struct WindowBody {
  std::uint64_t region = 0;      // RegionId
  std::uint64_t first_byte = 0;  // of this peer's slots
  std::uint32_t first_signal = 0;
  std::uint32_t slots = 0;
  std::uint32_t slot_bytes = 0;
  std::uint32_t first_credit = 0;  // index of the signals by which the peer gives slots back
};
static_assert(sizeof(WindowBody) == 32);

struct ReadyBody {
  std::uint64_t region = 0;      // RegionId of the receiving memory, the operation's alone
  std::uint64_t first_byte = 0;  // of the operation's first element
  std::uint64_t bytes = 0;
  std::uint32_t signal = 0;  // counts chunks that have arrived
  std::uint32_t zero = 0;
};
static_assert(sizeof(ReadyBody) == 32);

inline constexpr std::size_t kMostInlineBytes =
    kMostMessageBytes - sizeof(MessageHead) - sizeof(OfferBody);
// No operation waits for longer; times from a peer above it are a broken peer's.
inline constexpr std::uint64_t kMostWaitNs = 366ull * 24 * 3600 * 1'000'000'000;
// More offers are not made in the life of a daemon.
inline constexpr std::uint64_t kMostTurn = std::uint64_t{1} << 62;

struct Message {
  MessageKind kind = MessageKind::Offer;
  std::span<const std::byte> body;  // and data; whole, and right as far as it alone can tell
};

// The payload of a Message frame, taken apart; every field of its body is checked. DataLoss/Corrupt
// naming the field and its value.
Result<Message> read_message(std::span<const std::byte> payload);

// The body of a message that read_message() gave. What lies behind it: of an offer its inline data,
// of a waiting one its pids.
template <typename Body>
Body body_of(std::span<const std::byte> body) {
  Body copy;
  std::memcpy(&copy, body.data(), sizeof copy);
  return copy;
}

// What the ranks of the sending node agree on.
OperationSpec spec_of(const OfferBody& offer);
OfferBody offer_of(const OperationSpec& spec);

}  // namespace arcomm::net
