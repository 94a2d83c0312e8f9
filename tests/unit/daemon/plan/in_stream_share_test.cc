// SMs of one GPU, dealt out among communicators that come and go.
#include "daemon/plan/in_stream_share.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <vector>

#include "daemon/plan/launch_table_builder.h"

namespace arcomm {
namespace {

// Communicators of one GPU alone.
class Shares {
 public:
  Shares(std::uint32_t sms, std::uint32_t communicators = 2) : shares_(sms, communicators) {}

  std::uint32_t join() { return join(~std::uint32_t{0}); }
  // most: as its ranks ask.
  std::uint32_t join(std::uint32_t most) {
    std::uint32_t share = shares_.next(taken(), most);
    const bool is_tiny = share == 0;
    if (is_tiny) share = shares_.next_tiny(taken());
    share = std::min(share, most);
    if (share != 0) {
      has_.push_back(share);
      are_tiny_.push_back(is_tiny);
    }
    return share;
  }
  void leave(std::size_t which) {
    has_.erase(has_.begin() + static_cast<std::ptrdiff_t>(which));
    are_tiny_.erase(are_tiny_.begin() + static_cast<std::ptrdiff_t>(which));
  }
  std::size_t count() const { return has_.size(); }
  std::uint32_t sum() const {
    std::uint32_t sum = 0;
    for (const std::uint32_t share : has_) sum += share;
    return sum;
  }
  const std::vector<std::uint32_t>& all() const { return has_; }

 private:
  InStreamTaken taken() const {
    InStreamTaken taken;
    for (std::size_t i = 0; i < has_.size(); ++i) taken.add(has_[i], are_tiny_[i]);
    return taken;
  }

  const InStreamShares shares_;
  std::vector<std::uint32_t> has_;
  std::vector<bool> are_tiny_;
};

std::vector<std::uint32_t> dealt(std::uint32_t sms, std::uint32_t communicators) {
  Shares shares(sms, communicators);
  while (shares.join() != 0) {
  }
  return shares.all();
}

using Dealt = std::vector<std::uint32_t>;

TEST(InStreamShares, FirstAndSecondHaveWhatWasMeasuredAndTheThirdWhatIsLeft) {
  EXPECT_EQ(dealt(132, 2), (Dealt{95, 25, 1}));
  EXPECT_EQ(dealt(148, 2), (Dealt{95, 25, 6, 6, 5}));
  EXPECT_EQ(dealt(108, 2), (Dealt{71, 25, 1}));
  EXPECT_EQ(dealt(62, 2), (Dealt{25, 25, 1}));
  EXPECT_EQ(dealt(61, 2), Dealt{});
  EXPECT_EQ(dealt(0, 2), Dealt{});
}

TEST(InStreamShares, MoreThanTwoHaveAShareOfTheirOwnWhereTheNodeIsToldSo) {
  EXPECT_EQ(dealt(132, 3), (Dealt{70, 25, 25, 1}));
  EXPECT_EQ(dealt(132, 4), (Dealt{45, 25, 25, 25, 1}));
  EXPECT_EQ(dealt(132, 6), (Dealt{33, 25, 25, 25, 6, 6, 1}));
  EXPECT_EQ(dealt(108, 4), (Dealt{46, 25, 25, 1})) << "there is no room for four";
  EXPECT_EQ(dealt(68, 8), (Dealt{25, 25, 6, 1})) << "the first two come first";
}

TEST(InStreamShares, TheBlocksOfAllFitBesideWhatStaysInWhateverOrderTheyComeAndGo) {
  std::mt19937 random(1);
  for (std::uint32_t sms = 0; sms <= 300; sms += sms < 150 ? 1 : 7) {
    for (std::uint32_t communicators = 2; communicators <= 8; ++communicators) {
      Shares shares(sms, communicators);
      for (int turn = 0; turn < 200; ++turn) {
        if (shares.count() != 0 && random() % 5 < 2) {
          shares.leave(random() % shares.count());
        } else {
          shares.join(random() % 3 == 0 ? 1 + static_cast<std::uint32_t>(random() % 40)
                                        : ~std::uint32_t{0});
        }
        // One SM is launched operations' whatever happens: see LaunchRoom.
        ASSERT_LE(shares.sum() + kResidentSms + (shares.count() == 0 ? 0 : 1),
                  std::max(sms, kResidentSms))
            << sms << " SMs, " << communicators << " communicators";
      }
    }
  }
}

TEST(InStreamShares, OneThatAsksForFewLeavesTheRestToOthers) {
  Shares shares(132);
  EXPECT_EQ(shares.join(16), 16u);
  EXPECT_EQ(shares.join(), 95u) << "it is no tiny one: the second has what a first one has";
  EXPECT_EQ(shares.join(8), 8u) << "9 are left, too few for a small share";
  Shares alike(132);
  for (int i = 0; i < 5; ++i) EXPECT_EQ(alike.join(24), 24u) << i;
  EXPECT_EQ(alike.join(24), 1u) << "a tiny one";
}

TEST(InStreamShares, WhoeverComesAfterTheFirstHasLeftHasWhatItHad) {
  for (std::uint32_t communicators = 2; communicators <= 4; ++communicators) {
    Shares shares(132, communicators);
    const std::uint32_t first = shares.join();
    for (std::uint32_t i = 1; i < communicators; ++i) ASSERT_EQ(shares.join(), kSmallShare);
    shares.leave(1);
    EXPECT_EQ(shares.join(), kSmallShare) << communicators << ": the first is still there";
    shares.leave(0);
    EXPECT_EQ(shares.join(), first) << communicators;
  }
}

TEST(InStreamShares, TinyOnesTakeNothingFromThoseThatComeAfterThem) {
  for (const std::uint32_t sms : {62u, 78u, 108u, 114u, 132u, 148u, 160u}) {
    for (std::uint32_t communicators = 2; communicators <= 8; ++communicators) {
      const Dealt before = dealt(sms, communicators);
      Shares shares(sms, communicators);
      while (shares.join() != 0) {
      }
      shares.leave(0);
      EXPECT_EQ(shares.join(), before[0]) << sms;
      shares.leave(0);
      EXPECT_EQ(shares.join(), before[1]) << sms;
    }
  }
}

TEST(InStreamShares, ATinyOneServesSmallOperationsOnly) {
  const auto most = [](std::uint32_t ranks, std::uint32_t blocks, bool is_tiny = true) {
    const LaunchTable table = make_launch_table(
        {.ranks = ranks,
         .atomic_128b_stores = true,
         .in_stream_blocks = blocks,
         .most_in_stream_bytes = is_tiny ? most_bytes_of_tiny_share(blocks) : kAnyBytes});
    const LaunchStretch first = stretches_of(table, DType::Float16).front();
    EXPECT_EQ(first.path, LaunchPath::InStream);
    return first.most_bytes;
  };
  EXPECT_EQ(most(2, 1), 16u * 1024);
  EXPECT_EQ(most(2, 6), 96u * 1024);
  EXPECT_EQ(most(4, 1), 16u * 1024);
  EXPECT_EQ(most(8, 6), 96u * 1024);
  EXPECT_EQ(most(2, kMaxInStreamBlocks, false), 16u * 1024 * 1024);
  EXPECT_EQ(most(4, 25, false), 25u * 15'872 / 64 * 64 * 4) << "as far as its areas hold it";
}

}  // namespace
}  // namespace arcomm
