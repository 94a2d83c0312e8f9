// What travels in a Message frame: what is right is taken apart, what is wrong is refused by field
// and value.
#include "proto/net/message.h"

#include <gtest/gtest.h>

#include <cstring>
#include <functional>
#include <string>
#include <vector>

namespace arcomm::net {
namespace {

using testing::Test;

std::vector<std::byte> bytes_of(const auto& value) {
  const auto bytes = std::as_bytes(std::span(&value, 1));
  return {bytes.begin(), bytes.end()};
}

template <typename Body>
std::vector<std::byte> message_of(MessageKind kind, const Body& body, std::size_t behind = 0) {
  const MessageHead head{.kind = kind, .bytes = static_cast<std::uint32_t>(sizeof body + behind)};
  std::vector<std::byte> payload = bytes_of(head);
  const auto bytes = bytes_of(body);
  payload.insert(payload.end(), bytes.begin(), bytes.end());
  payload.resize(payload.size() + behind, std::byte{7});
  return payload;
}

std::string refusal(const std::vector<std::byte>& payload) {
  const auto message = read_message(payload);
  if (message) return "";
  EXPECT_EQ(message.error().code, ErrorCode::DataLoss);
  EXPECT_EQ(message.error().reason, Reason::Corrupt);
  return message.error().message;
}
void expect_refused(const std::vector<std::byte>& payload, const std::string& field,
                    const std::string& value) {
  const std::string why = refusal(payload);
  EXPECT_NE(why.find(field), std::string::npos) << why;
  EXPECT_NE(why.find(value), std::string::npos) << why;
}

OfferBody good_offer() {
  OfferBody offer = offer_of(all_reduce_of(12, DType::BFloat16, ReduceOp::Max));
  offer.total_count = 20;
  offer.first_element = 8;
  offer.remaining_ns = 5'000'000'000;
  offer.first_rank = 3;
  offer.identity = 17;
  return offer;
}

TEST(Message, AnOfferComesOutAsItWentIn) {
  OfferBody offer = good_offer();
  offer.inline_bytes = 24;
  const auto payload = message_of(MessageKind::Offer, offer, 24);
  const auto message = read_message(payload);
  ASSERT_TRUE(message.ok()) << message.error().to_string();
  EXPECT_EQ(message->kind, MessageKind::Offer);
  const auto read = body_of<OfferBody>(message->body);
  EXPECT_EQ(spec_of(read), all_reduce_of(12, DType::BFloat16, ReduceOp::Max));
  EXPECT_EQ(read.remaining_ns, 5'000'000'000u);
  EXPECT_EQ(message->body.size() - sizeof read, 24u);
  EXPECT_EQ(message->body.back(), std::byte{7});
}

TEST(Message, EveryWrongFieldOfAnOfferIsNamedWithItsValue) {
  const auto refuse = [](const std::function<void(OfferBody&)>& spoil, const std::string& field,
                         const std::string& value) {
    OfferBody offer = good_offer();
    spoil(offer);
    expect_refused(message_of(MessageKind::Offer, offer), field, value);
  };
  refuse([](OfferBody& offer) { offer.dtype = 77; }, "dtype", "77");
  refuse([](OfferBody& offer) { offer.op = 5; }, "op", "5");
  refuse([](OfferBody& offer) { offer.codec = 9; }, "codec", "9");
  refuse([](OfferBody& offer) { offer.collective = 200; }, "collective", "200");
  refuse([](OfferBody& offer) { offer.recv_count = 13; }, "recv_count", "13");
  refuse([](OfferBody& offer) { offer.root = 2; }, "root", "2");
  refuse([](OfferBody& offer) { offer.send_count = offer.recv_count = ~std::uint64_t{0}; },
         "send_count", "18446744073709551615");
  refuse([](OfferBody& offer) { offer.first_element = 9; }, "first_element", "9");
  refuse([](OfferBody& offer) { offer.first_element = ~std::uint64_t{0}; }, "first_element",
         "18446744073709551615");
  refuse([](OfferBody& offer) { offer.remaining_ns = ~std::uint64_t{0}; }, "remaining_ns",
         "18446744073709551615");
  refuse([](OfferBody& offer) { offer.identity = 1u << 18; }, "identity", "262144");
  refuse([](OfferBody& offer) { offer.first_rank = -1; }, "first_rank", "-1");
  refuse([](OfferBody& offer) { offer.first_rank = 64; }, "first_rank", "64");
  refuse([](OfferBody& offer) { offer.is_placed = 2; }, "is_placed", "2");
  refuse([](OfferBody& offer) { offer.turn = kMostTurn + 1; }, "turn", "4611686018427387905");
  refuse([](OfferBody& offer) { offer.zero = 4; }, "zero", "4");
  refuse([](OfferBody& offer) { offer.inline_bytes = 4; }, "data length", "4");
}

TEST(Message, AHeadThatDoesNotFitItsPayloadIsRefused) {
  auto payload = message_of(MessageKind::Offer, good_offer());
  EXPECT_EQ(refusal(payload), "");
  EXPECT_NE(refusal({}), "");
  for (std::size_t length = 0; length < payload.size(); ++length) {
    EXPECT_NE(refusal({payload.begin(), payload.begin() + static_cast<std::ptrdiff_t>(length)}), "")
        << length;
  }
  payload.push_back(std::byte{0});
  expect_refused(payload, "bytes", "72");
  payload.pop_back();
  payload[0] = std::byte{9};
  expect_refused(payload, "unknown kind", "9");
  payload[0] = std::byte{1};
  payload[2] = std::byte{3};
  expect_refused(payload, "zero", "3");
}

TEST(Message, WhatIsSaidOfPlacesHasNoBody) {
  for (const MessageKind kind : {MessageKind::Placed, MessageKind::Recall, MessageKind::Recalled}) {
    const MessageHead head{.kind = kind};
    std::vector<std::byte> payload(sizeof head);
    std::memcpy(payload.data(), &head, sizeof head);
    const auto message = read_message(payload);
    ASSERT_TRUE(message.ok()) << message.error().to_string();
    EXPECT_EQ(message->kind, kind);
    EXPECT_TRUE(message->body.empty());
    payload.push_back(std::byte{0});
    payload[4] = std::byte{1};
    expect_refused(payload, "data length", "1");
  }
}

TEST(Message, AFailureIsOneAndItsTextIsFitToBeShown) {
  FailureBody failure{.code = 10, .reason = 7, .culprit = 5};
  failure.text = {'g', 'o', 'n', 'e'};
  for (const auto kind : {MessageKind::Refused, MessageKind::Revoked, MessageKind::Left})
    EXPECT_EQ(refusal(message_of(kind, failure)), "");
  const auto refuse = [&](const std::function<void(FailureBody&)>& spoil, const std::string& field,
                          const std::string& value) {
    FailureBody spoiled = failure;
    spoil(spoiled);
    expect_refused(message_of(MessageKind::Revoked, spoiled), field, value);
  };
  refuse([](FailureBody& body) { body.code = 0; }, "code", "0");
  refuse([](FailureBody& body) { body.code = 99; }, "code", "99");
  refuse([](FailureBody& body) { body.code = -1; }, "code", "-1");
  refuse([](FailureBody& body) { body.reason = 1000; }, "reason", "1000");
  refuse([](FailureBody& body) { body.culprit = -2; }, "culprit", "-2");
  refuse([](FailureBody& body) { body.culprit = 64; }, "culprit", "64");
  refuse([](FailureBody& body) { body.zero = 1; }, "zero", "1");
  refuse([](FailureBody& body) { body.text.fill('a'); }, "text", "not ended");
  refuse([](FailureBody& body) { body.text[1] = '\n'; }, "text", "g\\x0ane");
  refuse([](FailureBody& body) { body.text[1] = static_cast<char>(0xff); }, "text", "g\\xffne");
}

TEST(Message, WaitingNamesNoMoreSeatsThanThereAre) {
  const WaitingBody waiting{.called = 0b101, .since_ns = 12, .seats = 3};
  EXPECT_EQ(refusal(message_of(MessageKind::Waiting, waiting, 12)), "");
  expect_refused(message_of(MessageKind::Waiting, waiting, 8), "data length", "8");
  expect_refused(message_of(MessageKind::Waiting, WaitingBody{.called = 8, .seats = 3}, 12),
                 "called", "8");
  expect_refused(message_of(MessageKind::Waiting, WaitingBody{}), "seats", "0");
  expect_refused(message_of(MessageKind::Waiting, WaitingBody{.seats = 65}, 260), "seats", "65");
  expect_refused(
      message_of(MessageKind::Waiting, WaitingBody{.since_ns = kMostWaitNs + 1, .seats = 1}, 4),
      "since_ns", std::to_string(kMostWaitNs + 1));
}

TEST(Message, WhereDataGoIsBounded) {
  const WindowBody window{.region = 3, .slots = 8, .slot_bytes = 65536};
  EXPECT_EQ(refusal(message_of(MessageKind::Window, window)), "");
  const auto refuse = [&](const std::function<void(WindowBody&)>& spoil, const std::string& field) {
    WindowBody spoiled = window;
    spoil(spoiled);
    expect_refused(message_of(MessageKind::Window, spoiled), field, "");
  };
  refuse([](WindowBody& body) { body.region = 0; }, "region");
  refuse([](WindowBody& body) { body.slots = 0; }, "slots");
  refuse([](WindowBody& body) { body.slots = 1u << 31; }, "slots");
  refuse([](WindowBody& body) { body.slot_bytes = 0; }, "slot_bytes");
  refuse([](WindowBody& body) { body.slot_bytes = kMostChunkBytes + 1; }, "slot_bytes");
  refuse([](WindowBody& body) { body.first_byte = ~std::uint64_t{0}; }, "first_byte");
  refuse([](WindowBody& body) { body.first_signal = ~0u; }, "first_signal");
  refuse([](WindowBody& body) { body.first_credit = ~0u; }, "first_credit");

  EXPECT_EQ(refusal(message_of(MessageKind::Ready, ReadyBody{.region = 3, .bytes = 9})), "");
  expect_refused(message_of(MessageKind::Ready, ReadyBody{.bytes = 9}), "region", "0");
  expect_refused(message_of(MessageKind::Ready,
                            ReadyBody{.region = 3, .first_byte = ~std::uint64_t{0}, .bytes = 9}),
                 "bytes", "9");
}

}  // namespace
}  // namespace arcomm::net
