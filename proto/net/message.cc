#include "proto/net/message.h"

#include <algorithm>
#include <optional>

#include "proto/text.h"

namespace arcomm::net {
namespace {

Error no_message(const auto&... parts) {
  return error(ErrorCode::DataLoss, Reason::Corrupt, parts...);
}

Error wrong(MessageKind kind, const char* field, const auto& value, const auto&... allowed) {
  return no_message("message ", text_of(kind), ": ", field, " is ", value, " (", allowed...,
                    "): the peer's daemon is broken or of another version");
}

// None where the kind is unknown.
std::optional<std::size_t> body_bytes(MessageKind kind) {
  switch (kind) {
    case MessageKind::Offer:
      return sizeof(OfferBody);
    case MessageKind::Refused:
    case MessageKind::Revoked:
    case MessageKind::Left:
      return sizeof(FailureBody);
    case MessageKind::Waiting:
      return sizeof(WaitingBody);
    case MessageKind::Window:
      return sizeof(WindowBody);
    case MessageKind::Ready:
      return sizeof(ReadyBody);
    case MessageKind::Placed:
    case MessageKind::Recall:
    case MessageKind::Recalled:
      return 0;
  }
  return std::nullopt;
}

Status check_zero(MessageKind kind, std::uint32_t zero) {
  if (zero != 0) return wrong(kind, "zero", zero, "0 is allowed");
  return {};
}

Status check_rank(MessageKind kind, const char* field, Rank rank, Rank least) {
  if (rank >= least && rank < kMaxRanks) return {};
  return wrong(kind, field, rank, least, " to ", kMaxRanks - 1, " are allowed");
}

Status check_behind(MessageKind kind, std::size_t behind, std::size_t expected) {
  if (behind == expected) return {};
  return wrong(kind, "data length", behind, expected, " is what the body says");
}

Status check_offer(const OfferBody& offer, std::size_t behind) {
  constexpr auto kKind = MessageKind::Offer;
  if (const char* fault = find_fault(spec_of(offer))) {
    return wrong(kKind, "its operation", fault, "collective ", unsigned{offer.collective},
                 ", dtype ", unsigned{offer.dtype}, ", op ", unsigned{offer.op}, ", codec ",
                 unsigned{offer.codec}, ", send_count ", offer.send_count, ", recv_count ",
                 offer.recv_count, ", root ", offer.root);
  }
  if (offer.first_element > offer.total_count ||
      offer.send_count > offer.total_count - offer.first_element)
    return wrong(kKind, "first_element", offer.first_element, "a part of ", offer.send_count,
                 " does not fit there into total_count ", offer.total_count);
  if (offer.remaining_ns > kMostWaitNs)
    return wrong(kKind, "remaining_ns", offer.remaining_ns, "0 to ", kMostWaitNs, " are allowed");
  if (offer.identity >> kIdentityBits != 0)
    return wrong(kKind, "identity", offer.identity, kIdentityBits, " bits are allowed");
  ARC_RETURN_IF_ERROR(check_rank(kKind, "first_rank", offer.first_rank, 0));
  if (offer.is_placed > 1) return wrong(kKind, "is_placed", offer.is_placed, "0 and 1 are allowed");
  if (offer.turn > kMostTurn)
    return wrong(kKind, "turn", offer.turn, "0 to ", kMostTurn, " are allowed");
  ARC_RETURN_IF_ERROR(check_zero(kKind, offer.zero));
  return check_behind(kKind, behind, offer.inline_bytes);
}

Status check_failure(MessageKind kind, const FailureBody& failure, std::size_t behind) {
  const auto code = static_cast<unsigned>(failure.code);
  if (failure.code == 0 || error_code_from(code) == ErrorCode::Unknown)
    return wrong(kind, "code", failure.code, "it is no error of arcommd's");
  const auto reason = static_cast<unsigned>(failure.reason);
  if (failure.reason != 0 && reason_from(reason) == Reason::None)
    return wrong(kind, "reason", failure.reason, "it is none of arcommd's");
  ARC_RETURN_IF_ERROR(check_rank(kind, "culprit", failure.culprit, kNoRank));
  ARC_RETURN_IF_ERROR(check_zero(kind, failure.zero));
  const auto end = std::ranges::find(failure.text, '\0');
  if (end == failure.text.end()) return wrong(kind, "text", "not ended", "a zero must follow");
  const std::string_view text(failure.text.data(),
                              static_cast<std::size_t>(end - failure.text.begin()));
  if (safe_text(text, 4 * text.size()) != text)
    return wrong(kind, "text", safe_text(text, 64), "UTF-8 on one line is allowed");
  return check_behind(kind, behind, 0);
}

Status check_waiting(const WaitingBody& waiting, std::size_t behind) {
  constexpr auto kKind = MessageKind::Waiting;
  if (waiting.seats == 0 || waiting.seats > kMaxRanks)
    return wrong(kKind, "seats", waiting.seats, "1 to ", kMaxRanks, " are allowed");
  if (waiting.seats < 64 && waiting.called >> waiting.seats != 0)
    return wrong(kKind, "called", waiting.called, "it has ", waiting.seats, " seats");
  if (waiting.since_ns > kMostWaitNs)
    return wrong(kKind, "since_ns", waiting.since_ns, "0 to ", kMostWaitNs, " are allowed");
  ARC_RETURN_IF_ERROR(check_zero(kKind, waiting.zero));
  return check_behind(kKind, behind, waiting.seats * sizeof(std::int32_t));
}

Status check_window(const WindowBody& window, std::size_t behind) {
  constexpr auto kKind = MessageKind::Window;
  if (window.region == 0) return wrong(kKind, "region", window.region, "0 is none");
  if (window.slot_bytes == 0 || window.slot_bytes > kMostChunkBytes)
    return wrong(kKind, "slot_bytes", window.slot_bytes, "1 to ", kMostChunkBytes, " are allowed");
  constexpr std::uint32_t kMostSlots = 1u << 16;
  if (window.slots == 0 || window.slots > kMostSlots)
    return wrong(kKind, "slots", window.slots, "1 to ", kMostSlots, " are allowed");
  constexpr std::uint64_t kMostBytes = std::uint64_t{1} << 48;
  if (window.first_byte > kMostBytes)
    return wrong(kKind, "first_byte", window.first_byte, "0 to ", kMostBytes, " are allowed");
  constexpr std::uint32_t kMostSignal = 1u << 24;
  if (window.first_signal > kMostSignal)
    return wrong(kKind, "first_signal", window.first_signal, "0 to ", kMostSignal, " are allowed");
  if (window.first_credit > kMostSignal)
    return wrong(kKind, "first_credit", window.first_credit, "0 to ", kMostSignal, " are allowed");
  return check_behind(kKind, behind, 0);
}

Status check_ready(const ReadyBody& ready, std::size_t behind) {
  constexpr auto kKind = MessageKind::Ready;
  if (ready.region == 0) return wrong(kKind, "region", ready.region, "0 is none");
  if (ready.first_byte > ~ready.bytes)
    return wrong(kKind, "bytes", ready.bytes, "first_byte is ", ready.first_byte,
                 ", and the end overflows 64 bits");
  ARC_RETURN_IF_ERROR(check_zero(kKind, ready.zero));
  return check_behind(kKind, behind, 0);
}

Status check_body(const Message& message, std::size_t behind) {
  switch (message.kind) {
    case MessageKind::Offer:
      return check_offer(body_of<OfferBody>(message.body), behind);
    case MessageKind::Refused:
    case MessageKind::Revoked:
    case MessageKind::Left:
      return check_failure(message.kind, body_of<FailureBody>(message.body), behind);
    case MessageKind::Waiting:
      return check_waiting(body_of<WaitingBody>(message.body), behind);
    case MessageKind::Window:
      return check_window(body_of<WindowBody>(message.body), behind);
    case MessageKind::Ready:
      return check_ready(body_of<ReadyBody>(message.body), behind);
    case MessageKind::Placed:
    case MessageKind::Recall:
    case MessageKind::Recalled:
      return check_behind(message.kind, behind, 0);
  }
  return {};
}

}  // namespace

std::string_view text_of(MessageKind kind) {
  switch (kind) {
    case MessageKind::Offer:
      return "offer";
    case MessageKind::Refused:
      return "refused";
    case MessageKind::Revoked:
      return "revoked";
    case MessageKind::Left:
      return "left";
    case MessageKind::Waiting:
      return "waiting";
    case MessageKind::Window:
      return "window";
    case MessageKind::Ready:
      return "ready";
    case MessageKind::Placed:
      return "placed";
    case MessageKind::Recall:
      return "recall";
    case MessageKind::Recalled:
      return "recalled";
  }
  return "unknown";
}

Result<Message> read_message(std::span<const std::byte> payload) {
  if (payload.size() < sizeof(MessageHead))
    return no_message("a message of ", payload.size(), " bytes (its head alone has ",
                      sizeof(MessageHead), ")");
  const auto head = body_of<MessageHead>(payload);
  const Message message{head.kind, payload.subspan(sizeof head)};
  const std::optional<std::size_t> body = body_bytes(head.kind);
  if (!body)
    return no_message("a message of unknown kind ", static_cast<unsigned>(head.kind),
                      ": the peer's daemon is broken or of another version");
  ARC_RETURN_IF_ERROR(check_zero(head.kind, head.zero));
  if (head.bytes != message.body.size())
    return wrong(head.kind, "bytes", head.bytes, message.body.size(), " follow");
  if (message.body.size() < *body)
    return wrong(head.kind, "bytes", head.bytes, "its body has ", *body);
  ARC_RETURN_IF_ERROR(check_body(message, message.body.size() - *body));
  return message;
}

OperationSpec spec_of(const OfferBody& offer) {
  return {.send_count = offer.send_count,
          .recv_count = offer.recv_count,
          .collective = static_cast<Collective>(offer.collective),
          .dtype = static_cast<DType>(offer.dtype),
          .op = static_cast<ReduceOp>(offer.op),
          .codec = codec_in(offer.codec),
          .codec_origin = codec_origin_in(offer.codec),
          .root = offer.root};
}

OfferBody offer_of(const OperationSpec& spec) {
  return {.send_count = spec.send_count,
          .recv_count = spec.recv_count,
          .root = spec.root,
          .collective = static_cast<std::uint8_t>(spec.collective),
          .dtype = static_cast<std::uint8_t>(spec.dtype),
          .op = static_cast<std::uint8_t>(spec.op),
          .codec = codec_byte_of(spec)};
}

}  // namespace arcomm::net
