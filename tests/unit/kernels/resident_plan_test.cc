#include <gtest/gtest.h>

#include <set>
#include <string>

#include "kernels/resident/grid.h"

namespace arcomm {
namespace {

// The header that ranks compare: also of codecs and collectives that do not exist yet.
TEST(ResidentPlan, ThatDiffersInAnythingThatRanksMustAgreeOnHasASignatureOfItsOwn) {
  std::set<std::uint32_t> seen;
  for (const std::uint64_t count : {std::uint64_t{0}, std::uint64_t{1}, kMaxResidentBytes}) {
    for (unsigned dtype = 0; dtype < kDTypes; ++dtype) {
      for (unsigned op = 0; op < kReduceOps; ++op) {
        for (unsigned codec = 0; codec < 8; ++codec) {
          for (unsigned collective = 0; collective < 8; ++collective) {
            const ResidentPlan plan{.count = count,
                                    .dtype = static_cast<DType>(dtype),
                                    .op = static_cast<ReduceOp>(op),
                                    .codec = static_cast<Codec>(codec),
                                    .collective = static_cast<Collective>(collective)};
            EXPECT_TRUE(seen.insert(resident_signature(plan)).second);
          }
        }
      }
    }
  }
}

TEST(ResidentPlan, OfWhatTheGridIsNotCompiledForIsRefusedAndTheErrorSaysWhat) {
  EXPECT_TRUE(can_be_resident(0, 0, {.count = kMaxResidentBytes / 4}));
  EXPECT_FALSE(can_be_resident(0, 0, {.count = kMaxResidentBytes / 4 + 1}));
  EXPECT_FALSE(can_be_resident(0, 0, {.count = std::uint64_t{1} << 62})) << "no product overflows";
  EXPECT_FALSE(can_be_resident(kMaxDevicePlans, 0, {.count = 1}));
  EXPECT_FALSE(can_be_resident(0, kResidentMembers, {.count = 1}));
  const Status coded = can_be_resident(7, 3, {.count = 16, .codec = Codec::Q4Rotated});
  ASSERT_FALSE(coded);
  EXPECT_EQ(coded.error().message,
            "plan 7 of slot 3 with 16 elements, codec q4_rotated, for all_reduce is none for the "
            "resident kernel");
  EXPECT_FALSE(
      can_be_resident(0, 0, {.count = 16, .collective = static_cast<Collective>(kCollectives)}));
}

}  // namespace
}  // namespace arcomm
