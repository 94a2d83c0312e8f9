#include "daemon/exec/net/agreement/early_messages.h"

#include <gtest/gtest.h>

#include <vector>

namespace arcomm {
namespace {

// The first of them says where data go, and is not sent again: all would wait until their deadline.
TEST(EarlyMessages, ThatAreLetGoOfAreMissedWhereTheirCommunicatorIsFormedAfterAll) {
  EarlyMessages early;
  const auto keep = [&](PeerId from, std::uint64_t number, std::uint64_t now) {
    early.keep(from, {.communicator = number}, {net::MessageKind::Window, {}}, now);
  };
  keep(0xb, 1, 10);
  keep(0xc, 2, 11);
  keep(0xb, 3, 12);
  early.forget(0xc);
  EXPECT_TRUE(early.has_lost(2));
  EXPECT_FALSE(early.has_lost(1));
  early.forget_old(11 + EarlyMessages::kLongestNs);
  EXPECT_TRUE(early.has_lost(1));
  EXPECT_FALSE(early.has_lost(3));
  EXPECT_EQ(early.take(3).size(), 1u);
}

TEST(EarlyMessages, AreKeptForTheirCommunicatorUntilThereAreTooMany) {
  EarlyMessages early;
  const std::vector<std::byte> body(8192);
  const auto keep = [&](std::uint64_t number, std::uint64_t seq, std::uint64_t now) {
    early.keep(0xb, {.communicator = number, .seq = seq}, {net::MessageKind::Offer, body}, now);
  };
  keep(1, 0, 10);
  keep(2, 0, 11);
  keep(1, 1, 12);
  const auto taken = early.take(1);
  ASSERT_EQ(taken.size(), 2u);
  EXPECT_EQ(taken[0].names.seq, 0u);
  EXPECT_EQ(taken[1].names.seq, 1u);
  EXPECT_EQ(early.take(1).size(), 0u);
  EXPECT_FALSE(early.has_lost(1));
  // One that gets too much is known to lack something.
  for (std::uint64_t seq = 0; seq < EarlyMessages::kMostBytesOfOne / body.size() + 2; ++seq)
    keep(3, seq, 13);
  EXPECT_TRUE(early.has_lost(3));
  for (std::uint64_t number = 100; number < 2000; ++number) keep(number, 0, 14);
  EXPECT_LE(early.bytes(), EarlyMessages::kMostBytes);
  EXPECT_TRUE(early.has_lost(1999));
  // What is over is not kept, and what is old is let go.
  early.end(4);
  EXPECT_GT(early.take_dropped()[static_cast<std::size_t>(NetDrop::TooMany)], 1u);
  keep(4, 0, 15);
  const NetDropCounts one = early.take_dropped();
  EXPECT_EQ(one[static_cast<std::size_t>(NetDrop::Ended)], 1u);
  EXPECT_EQ(one[static_cast<std::size_t>(NetDrop::TooMany)], 0u);
  early.forget_old(14 + EarlyMessages::kLongestNs + 1);
  EXPECT_GT(early.take_dropped()[static_cast<std::size_t>(NetDrop::NeverFormed)], 100u);
  EXPECT_TRUE(early.empty());
  EXPECT_EQ(early.bytes(), 0u);
}

}  // namespace
}  // namespace arcomm
