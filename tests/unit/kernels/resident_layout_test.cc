// Where the resident kernel's ranks leave things for each other: nothing may lie on anything else.
#include <gtest/gtest.h>

#include "kernels/launch_cuda.h"
#include "kernels/resident/layout.h"

namespace arcomm {
namespace {

TEST(ResidentLayout, HoldsWhatTheLaneTakes) {
  static_assert(kMostResidentRanks == kMaxCudaRanks);
  for (std::uint32_t ranks = 2; ranks <= kMaxCudaRanks; ++ranks) {
    for (const bool ll128 : {false, true})
      EXPECT_LE(max_resident_bytes(ranks), resident_capacity(ranks, ll128))
          << ranks << " " << ll128;
  }
}

TEST(ResidentLayout, SlotsOfAllRanksFitIntoAHalf) {
  for (std::uint32_t ranks = 2; ranks <= kMaxCudaRanks; ++ranks) {
    EXPECT_LE(ranks * resident_slot_bytes(ranks), kResidentHalfBytes) << ranks;
    EXPECT_EQ(resident_slot_bytes(ranks) % kLl128PacketBytes, 0u) << ranks;
  }
}

TEST(ResidentLayout, LinesEndWherePacketsBegin) {
  const ResidentShare largest = resident_share(kResidentLl16Bytes, true);
  EXPECT_FALSE(largest.packets);
  EXPECT_LE(largest.units * 16, kResidentPacketsOffset);
  EXPECT_TRUE(resident_share(kResidentLl16Bytes + 1, true).packets);
}

TEST(ResidentLayout, TheLastPacketEndsInItsSlot) {
  for (std::uint32_t ranks = 2; ranks <= kMaxCudaRanks; ++ranks) {
    const std::uint64_t most = max_resident_bytes(ranks);
    const ResidentShare packets = resident_share(most, true);
    EXPECT_LE(kResidentPacketsOffset + packets.units * kLl128PacketBytes,
              resident_slot_bytes(ranks));
    EXPECT_GE(packets.units * kLl128PacketData, most);
    const ResidentShare lines = resident_share(most, false);
    EXPECT_FALSE(lines.packets);
    EXPECT_LE(lines.units * 16, resident_slot_bytes(ranks));
  }
}

TEST(ResidentLayout, TheFirstBlockHasPartInEveryOperation) {
  for (const std::uint64_t bytes : {0, 1, 8, 2048, 2049, 16384, 16385, 1'000'000}) {
    for (const bool ll128 : {false, true}) {
      const ResidentShare share = resident_share(bytes, ll128);
      EXPECT_GE(share.blocks, 1u) << bytes;
      EXPECT_LE(share.blocks, kResidentBlocks) << bytes;
    }
  }
}

}  // namespace
}  // namespace arcomm
