// The payload of a message between daemons: any bytes. What is let through is whole, and nothing in
// it can overflow, lie outside of a table or be shown as something else than it is.
#include <algorithm>
#include <vector>

#include "proto/net/message.h"
#include "proto/text.h"

namespace {

using namespace arcomm;       // NOLINT(google-build-using-namespace)
using namespace arcomm::net;  // NOLINT(google-build-using-namespace)

void check(bool holds) {
  if (!holds) __builtin_trap();
}

void check_offer(std::span<const std::byte> body) {
  const auto offer = body_of<OfferBody>(body);
  const OperationSpec spec = spec_of(offer);
  check(find_fault(spec) == nullptr);
  check(offer.first_element + offer.send_count <= offer.total_count);
  check(offer.first_element + offer.send_count >= offer.send_count);
  check(offer.first_rank >= 0 && offer.first_rank < kMaxRanks);
  check(body.size() == sizeof offer + offer.inline_bytes && offer.inline_bytes <= kMostInlineBytes);
  const OfferBody back = offer_of(spec);
  check(spec_of(back) == spec);
}

void check_failure(std::span<const std::byte> body) {
  const auto failure = body_of<FailureBody>(body);
  check(std::ranges::find(failure.text, '\0') != failure.text.end());
  const std::string_view text = failure.text.data();
  check(safe_text(text, 4 * text.size()) == text);
  check(!name_of(static_cast<ErrorCode>(failure.code)).empty());
  check(failure.culprit >= kNoRank && failure.culprit < kMaxRanks);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  // At any alignment, and with its end at the allocation's.
  const std::size_t shift = size == 0 ? 0 : data[0] % 8;
  std::vector<std::byte> memory(shift + size);
  std::transform(data, data + size, memory.begin() + static_cast<std::ptrdiff_t>(shift),
                 [](std::uint8_t byte) { return std::byte{byte}; });
  const auto payload = std::span<const std::byte>(memory).subspan(shift);
  // Once as it is, once behind a head that is right.
  std::vector<std::byte> headed;
  if (size > 0 && payload.size() <= kMostMessageBytes - sizeof(MessageHead)) {
    constexpr MessageKind kKinds[] = {
        MessageKind::Offer,   MessageKind::Refused, MessageKind::Revoked, MessageKind::Left,
        MessageKind::Waiting, MessageKind::Window,  MessageKind::Ready};
    const MessageHead head{.kind = kKinds[data[0] % 7],
                           .bytes = static_cast<std::uint32_t>(size - 1)};
    const auto bytes = std::as_bytes(std::span(&head, 1));
    headed.assign(bytes.begin(), bytes.end());
    headed.insert(headed.end(), payload.begin() + 1, payload.end());
  }
  for (const auto& given : {payload, std::span<const std::byte>(headed)}) {
    const auto message = read_message(given);
    if (!message) {
      check(message.error().code == ErrorCode::DataLoss && !message.error().message.empty());
      continue;
    }
    if (message->kind == MessageKind::Offer) check_offer(message->body);
    if (message->kind == MessageKind::Refused || message->kind == MessageKind::Revoked ||
        message->kind == MessageKind::Left)
      check_failure(message->body);
    if (message->kind == MessageKind::Waiting)
      check(message->body.size() ==
            sizeof(WaitingBody) + body_of<WaitingBody>(message->body).seats * sizeof(std::int32_t));
  }
  return 0;
}
