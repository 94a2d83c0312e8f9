#include "client/src/host/segmentation.h"

#include <gtest/gtest.h>

namespace arcomm::client {
namespace {

TEST(Segmentation, LeavesWhatFitsInOneRequest) {
  const Segmentation one = cut(1024, 4, 4096);
  EXPECT_EQ(one.segments, 1u);
  EXPECT_EQ(one.elements(0), 1024u);
}

TEST(Segmentation, SendsOneRequestForNoElements) {
  const Segmentation none = cut(0, 8, 4096);
  EXPECT_EQ(none.segments, 1u);
  EXPECT_EQ(none.elements(0), 0u);
}

TEST(Segmentation, CutsOneElementPastTheLimitIntoTwo) {
  const Segmentation two = cut(1025, 4, 4096);
  ASSERT_EQ(two.segments, 2u);
  EXPECT_EQ(two.elements(0), 1024u);
  EXPECT_EQ(two.first_element(1), 1024u);
  EXPECT_EQ(two.elements(1), 1u);
}

TEST(Segmentation, CoversEveryElementOnceInWholePages) {
  for (const std::uint64_t element : {1u, 2u, 4u, 8u}) {
    for (const std::uint64_t limit :
         {std::uint64_t{1}, std::uint64_t{4096}, std::uint64_t{10000}, std::uint64_t{16} << 20}) {
      for (const std::uint64_t count : {std::uint64_t{1}, std::uint64_t{4097},
                                        std::uint64_t{1'000'003}, (std::uint64_t{5} << 30) + 7}) {
        const Segmentation pieces = cut(count, element, limit);
        const std::uint64_t last = pieces.segments - 1;
        EXPECT_EQ(pieces.first_element(last) + pieces.elements(last), count);
        EXPECT_GT(pieces.elements(last), 0u);
        if (pieces.segments > 1) {
          EXPECT_EQ(pieces.elements_per_segment * element % 4096, 0u);
          EXPECT_LE(pieces.elements_per_segment * element, std::max<std::uint64_t>(limit, 4096));
        }
      }
    }
  }
}

TEST(Segmentation, TakesNoLimitAsOneRequest) {
  EXPECT_EQ(cut(std::uint64_t{1} << 40, 8, 0).segments, 1u);
}

}  // namespace
}  // namespace arcomm::client
