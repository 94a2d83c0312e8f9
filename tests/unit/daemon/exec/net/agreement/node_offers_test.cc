#include "daemon/exec/net/agreement/node_offers.h"

#include <gtest/gtest.h>

#include <vector>

namespace arcomm {
namespace {

TEST(NodeOffers, AreChargedToTheirUserUntilTheyAreForgotten) {
  OfferMemory memory(std::uint64_t{2} << 20);
  const std::vector<std::byte> data(net::kMostInlineBytes);
  {
    NodeOffers one(2, memory, 1000), other(2, memory, 1000), of_another(2, memory, 70'000);
    std::uint64_t seq = 0;
    Error refusal;
    for (bool fits = true; fits; ++seq) {
      const auto added = one.add(1, seq, {}, data, 0);
      if (!added) refusal = added.error();
      fits = added.ok();
    }
    EXPECT_GT(seq, 50u) << "half of what there is";
    EXPECT_LE(seq, 65u);
    EXPECT_EQ(refusal.code, ErrorCode::ResourceExhausted);
    EXPECT_NE(refusal.message.find("uid 1000 has"), std::string::npos) << refusal.message;
    EXPECT_NE(refusal.message.find("of 2097152 (net.staging_bytes / 4)"), std::string::npos);
    EXPECT_FALSE(other.has_room(data.size()));
    EXPECT_FALSE(other.add(1, 0, {}, data, 0).ok());
    EXPECT_FALSE(other.has(1, 0));
    EXPECT_TRUE(of_another.has_room(data.size()));
    EXPECT_TRUE(of_another.add(1, 0, {}, data, 0).ok());
    one.forget([](std::uint64_t) { return true; });
    EXPECT_LE(memory.taken(), 8 * OfferMemory::kGrain) << "what is idle keeps little";
    EXPECT_TRUE(other.add(1, 0, {}, data, 0).ok());
  }
  EXPECT_EQ(memory.taken(), 0u);
}

}  // namespace
}  // namespace arcomm
