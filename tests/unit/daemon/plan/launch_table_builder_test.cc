#include "daemon/plan/launch_table_builder.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "daemon/plan/explain.h"
#include "daemon/plan/in_stream_share.h"
#include "kernels/codec/format.h"
#include "kernels/partition.h"

namespace arcomm {
namespace {

constexpr std::uint64_t kib(std::uint64_t n) {
  return n << 10;
}
constexpr std::uint64_t mib(std::uint64_t n) {
  return n << 20;
}

std::uint64_t up(std::uint64_t a, std::uint64_t b) {
  return (a + b - 1) / b;
}

LaunchTable table_of(std::uint32_t ranks, std::uint32_t blocks = kMaxInStreamBlocks,
                     bool atomic_128b_stores = true, std::uint64_t most_bytes = kAnyBytes) {
  return make_launch_table({.ranks = ranks,
                            .atomic_128b_stores = atomic_128b_stores,
                            .in_stream_blocks = blocks,
                            .most_in_stream_bytes = most_bytes});
}

InStreamShape shape_of(const LaunchTable& table, std::uint64_t bytes,
                       DType dtype = DType::Float16) {
  return table.find({.bytes = bytes, .dtype = dtype}).in_stream;
}

// What the areas of its blocks must hold of an operation: proto/gpu/exchange.h.
void expect_room(const InStreamShape& shape, std::uint64_t bytes, std::uint32_t ranks) {
  ASSERT_GE(shape.blocks, 1u);
  ASSERT_LE(shape.blocks, kMaxInStreamBlocks);
  switch (shape.algorithm) {
    case InStreamAlgorithm::OneShotLl16:
      ASSERT_LE(shape.blocks, kMaxInStreamLl16Blocks);
      ASSERT_LE(up(up(bytes, 8), shape.blocks), kInStreamThreads);
      break;
    case InStreamAlgorithm::OneShotLl128:
      ASSERT_GT(ranks, 2u);
      ASSERT_LE(up(up(bytes, kInStreamPacketData), shape.blocks), kInStreamPartPackets);
      ASSERT_LE(kInStreamPartPackets, in_stream_packets(ranks));
      break;
    case InStreamAlgorithm::PairLl128:
      ASSERT_EQ(ranks, 2u);
      ASSERT_EQ(in_stream_packets(ranks), kInStreamSlots * kInStreamPartPackets);
      ASSERT_LE(up(up(bytes, kInStreamPacketData), shape.blocks),
                kInStreamLaps * kInStreamSlots * kInStreamPartPackets);
      break;
    case InStreamAlgorithm::TwoShotLl128: {
      ASSERT_GT(ranks, 2u);
      const ElementRange longest = shard_range(bytes / 2, DType::Float16, ranks, 0);
      ASSERT_LE(up(up(longest.size() * 2, kInStreamPacketData), shape.blocks),
                kInStreamPartPackets);
      ASSERT_LE(2 * kInStreamPartPackets, in_stream_packets(ranks));
      break;
    }
  }
}

TEST(LaunchTableBuilder, GivesNoBlockMoreThanItsAreasHold) {
  for (std::uint32_t ranks = 2; ranks <= kMaxGpuRanks; ++ranks) {
    for (const std::uint32_t blocks : {1u, 2u, 7u, kSmallShare, 72u, 96u, 500u}) {
      for (const bool atomic_128b_stores : {false, true}) {
        const LaunchTable table = table_of(ranks, blocks, atomic_128b_stores);
        std::vector<std::uint64_t> sizes;
        for (const LaunchRow& row : table.rows()) {
          if (row.path != LaunchPath::InStream || row.codecs != bit_of(Codec::None)) continue;
          for (const std::uint64_t less : {0, 2, 62, 64, 66, 990, 992, 994})
            sizes.push_back(row.most_bytes / 2 * 2 - less);
        }
        ASSERT_FALSE(sizes.empty());
        const std::uint64_t most = sizes.front() > 0 ? *std::ranges::max_element(sizes) : 0;
        for (std::uint64_t bytes = 2; bytes <= most; bytes += 7938) sizes.push_back(bytes);
        for (const std::uint64_t bytes : sizes) {
          const InStreamShape shape = shape_of(table, bytes);
          ASSERT_LE(shape.blocks, std::min(blocks, kMaxInStreamBlocks));
          ASSERT_NO_FATAL_FAILURE(expect_room(shape, bytes, ranks))
              << bytes << " bytes, " << ranks << " ranks, " << blocks << " blocks";
        }
      }
    }
  }
}

TEST(LaunchTableBuilder, ReachesAsFarAsWasMeasured) {
  const auto most_of = [](const LaunchTable& table) {
    return stretches_of(table, DType::BFloat16).front();
  };
  EXPECT_EQ(most_of(table_of(2)), (LaunchStretch{LaunchPath::InStream, mib(16)}));
  for (std::uint32_t ranks = 3; ranks <= 8; ++ranks)
    EXPECT_EQ(most_of(table_of(ranks)), (LaunchStretch{LaunchPath::InStream, mib(2)})) << ranks;
  EXPECT_EQ(most_of(table_of(2, 96, true, 4096)), (LaunchStretch{LaunchPath::InStream, 4096}));
  EXPECT_EQ(most_of(table_of(2, 96, false)), (LaunchStretch{LaunchPath::InStream, kib(64)}));
  EXPECT_GT(most_of(table_of(2, kSmallShare)).most_bytes, mib(4));
}

TEST(LaunchTableBuilder, SpreadsOneHopBeforeItFillsWarpsAndKeepsTwoHopsTogether) {
  EXPECT_EQ(shape_of(table_of(2), 4096).blocks, 1u);
  EXPECT_EQ(shape_of(table_of(2), kib(64)).blocks, 16u);
  EXPECT_EQ(shape_of(table_of(2), kib(256)).blocks, 67u);  // four packets each
  EXPECT_EQ(shape_of(table_of(2), mib(16)).blocks, kMaxInStreamBlocks);
  EXPECT_EQ(shape_of(table_of(4), kib(512)).algorithm, InStreamAlgorithm::TwoShotLl128);
  EXPECT_EQ(shape_of(table_of(4), kib(512)).blocks, 34u);
}

TEST(LaunchTableBuilder, UsesLinesOf128BytesOnlyWhereTheyArriveWhole) {
  for (std::uint32_t ranks = 2; ranks <= kMaxGpuRanks; ++ranks) {
    const LaunchTable table = table_of(ranks, kMaxInStreamBlocks, false);
    for (const LaunchRow& row : table.rows()) {
      if (row.path == LaunchPath::InStream) {
        EXPECT_EQ(row.algorithm, InStreamAlgorithm::OneShotLl16);
      }
    }
  }
}

// What kernels/in_stream/coded_pair.cuh and coded_two_shot.cuh make of an operation.
void expect_coded_room(const InStreamShape& shape, std::uint64_t count, std::uint64_t elements,
                       std::uint32_t ranks) {
  ASSERT_GE(shape.blocks, 1u);
  ASSERT_EQ(shape.algorithm, coded_algorithm(ranks));
  const std::uint64_t of_owner =
      ranks == 2 ? count : ShardCut<std::uint64_t>(count, 2, ranks).of(0).size();
  const std::uint64_t of_warp = up(up(up(of_owner, elements), shape.blocks), kInStreamPartPackets);
  ASSERT_LE(of_warp, std::uint64_t{kMostInStreamLaps} * (ranks == 2 ? kInStreamSlots : 1));
  ASSERT_LE(count, kMostInStreamCount);
}

TEST(LaunchTableBuilder, SendsEveryCodecInStreamAsFarAsFlagsCount) {
  for (std::uint32_t ranks = 2; ranks <= kMaxGpuRanks; ++ranks) {
    for (const std::uint32_t blocks : {1u, kTinyShare, kSmallShare, kMaxInStreamBlocks}) {
      const LaunchTable table = table_of(ranks, blocks);
      for (const Codec codec : kRealCodecs) {
        const std::uint64_t elements = packet_shape_of(format_of(codec).bits).elements();
        for (const DType dtype : {DType::Float16, DType::BFloat16, DType::Float32}) {
          const auto shape = [&](std::uint64_t count, ReduceOp op = ReduceOp::Sum) {
            return table
                .find({.bytes = count * size_of(dtype), .dtype = dtype, .op = op, .codec = codec})
                .in_stream;
          };
          std::uint64_t most = 0;
          for (const LaunchRow& row : table.rows()) {
            if (row.path == LaunchPath::InStream && row.codecs != bit_of(Codec::None) &&
                (row.codecs & bit_of(codec)) != 0 && (row.dtypes & bit_of(dtype)) != 0)
              most = row.most_bytes / size_of(dtype);
          }
          ASSERT_GT(most, 3'000'000u) << text_of(codec) << " in " << blocks << " blocks";
          for (const std::uint64_t count : {std::uint64_t{0}, std::uint64_t{1}, std::uint64_t{33},
                                            std::uint64_t{1} << 20, most - 1, most}) {
            ASSERT_NO_FATAL_FAILURE(expect_coded_room(shape(count), count, elements, ranks))
                << text_of(codec) << ", " << count << " of " << dtype << ", " << ranks << " ranks, "
                << blocks << " blocks";
            EXPECT_NE(shape(count, ReduceOp::Avg).blocks, 0u);
            EXPECT_EQ(shape(count, ReduceOp::Max).blocks, 0u);
          }
          EXPECT_EQ(shape(most + 1).blocks, 0u);
          if (blocks == kMaxInStreamBlocks) {
            EXPECT_GE(most, 1'000'000'000u) << "2 GB of float16";
          }
        }
      }
      EXPECT_EQ(table.find({.bytes = 64, .dtype = DType::Int32, .codec = Codec::Q8}).path,
                LaunchPath::Launched);
    }
  }
}

TEST(LaunchTableBuilder, HasNoCodecWhereNoneIsServed) {
  const auto takes = [](const LaunchTable& table) {
    return table.find({.bytes = 4096, .dtype = DType::Float16, .codec = Codec::Q6}).path ==
           LaunchPath::InStream;
  };
  EXPECT_TRUE(takes(table_of(2)));
  EXPECT_FALSE(takes(table_of(2, kMaxInStreamBlocks, false))) << "lines are torn";
  EXPECT_FALSE(takes(table_of(2, 0)));
  EXPECT_FALSE(takes(table_of(1)));
  const LaunchTable off = make_launch_table({.ranks = 2,
                                             .atomic_128b_stores = true,
                                             .in_stream_blocks = kMaxInStreamBlocks,
                                             .codecs = false});
  EXPECT_FALSE(takes(off));
  EXPECT_TRUE(off.has_in_stream());
  EXPECT_TRUE(off.coding().empty());
  EXPECT_EQ(stretches_of(off, DType::Float16), stretches_of(table_of(2), DType::Float16))
      << "what people see of operations without a codec";
}

TEST(LaunchTableBuilder, GivesAnErrorClassACodecOnlyWhereItWasMeasuredToPay) {
  const auto codec_for = [](const LaunchTable& table, double decibels, std::uint64_t bytes) {
    return table.codec_for({.least_snr_db = decibels}, {.bytes = bytes, .dtype = DType::Float16});
  };
  EXPECT_EQ(codec_for(table_of(2), 20, mib(4)), Codec::Q4);
  EXPECT_EQ(codec_for(table_of(2), 30, mib(4)), Codec::Fp8);
  EXPECT_EQ(codec_for(table_of(2), 40, mib(64)), Codec::Q8);
  EXPECT_EQ(codec_for(table_of(2), 20, mib(1)), Codec::None);
  EXPECT_EQ(codec_for(table_of(2, kSmallShare), 20, mib(64)), Codec::None)
      << "too few SMs to encode as fast as the links are";
  EXPECT_EQ(codec_for(table_of(2, kMaxInStreamBlocks, false), 20, mib(64)), Codec::None);
  EXPECT_EQ(codec_for(table_of(4), 20, mib(64)), Codec::None) << "nobody has measured it";
  const LaunchTable pair = table_of(2);
  for (const CodingRow& row : pair.coding()) {
    const LaunchKey key{.bytes = row.least_bytes, .dtype = DType::Float32, .codec = row.codec};
    EXPECT_EQ(row.times, 1);
    EXPECT_EQ(pair.find(key).path, LaunchPath::InStream);
  }
}

TEST(LaunchTableBuilder, LeavesWhatAsksForNoCodecWhereItWas) {
  for (std::uint32_t ranks = 2; ranks <= kMaxGpuRanks; ++ranks) {
    const LaunchTable table = table_of(ranks);
    for (std::uint64_t bytes = 2; bytes <= mib(64); bytes *= 2) {
      const Launch launch = table.find({.bytes = bytes, .dtype = DType::Float16});
      const LaunchRow* taken = nullptr;
      for (const LaunchRow& row : table.rows()) {
        if (taken == nullptr && row.covers({.bytes = bytes, .dtype = DType::Float16})) taken = &row;
      }
      ASSERT_NE(taken, nullptr);
      EXPECT_EQ(launch.path, taken->path);
      if (launch.path == LaunchPath::InStream) {
        EXPECT_EQ(taken->codecs, bit_of(Codec::None));
      }
    }
  }
}

TEST(LaunchTableBuilder, HasNothingInStreamWhereThereIsNoRoomOrNoKernel) {
  EXPECT_FALSE(table_of(2, 0).has_in_stream());
  EXPECT_FALSE(table_of(1).has_in_stream());
  EXPECT_FALSE(table_of(kMaxGpuRanks + 1).has_in_stream());
  for (unsigned i = 0; i < kDTypes; ++i) {
    const auto dtype = static_cast<DType>(i);
    EXPECT_EQ(shape_of(table_of(2), 64, dtype).blocks != 0, has_in_stream_kernel(dtype)) << dtype;
  }
}

TEST(LaunchTableBuilder, LeavesSmallOperationsOfOtherTypesToTheResidentGrid) {
  const auto path = [](std::uint32_t ranks, std::uint64_t bytes) {
    return table_of(ranks).find({.bytes = bytes, .dtype = DType::Int32}).path;
  };
  EXPECT_EQ(path(1, 0), LaunchPath::Alone);
  EXPECT_EQ(path(2, 0), LaunchPath::Resident);
  EXPECT_EQ(path(2, kib(128)), LaunchPath::Resident);
  EXPECT_EQ(path(2, kib(128) + 4), LaunchPath::Launched);
  for (const std::uint32_t ranks : {3U, 8U}) {
    EXPECT_EQ(path(ranks, kib(32)), LaunchPath::Resident);
    EXPECT_EQ(path(ranks, kib(32) + 4), LaunchPath::Launched);
  }
}

TEST(LaunchTableBuilder, GivesAnOperationOfNoElementsOneBlock) {
  const InStreamShape shape = shape_of(table_of(2), 0);
  EXPECT_EQ(shape.algorithm, InStreamAlgorithm::OneShotLl16);
  EXPECT_EQ(shape.blocks, 1u);
}

TEST(LaunchTableBuilder, LetsCallsOfRanksOnOneHostMeetForWhatEachReadsInAShortTime) {
  const auto path = [](std::uint32_t ranks, std::int64_t setting, std::uint64_t bytes,
                       DType dtype = DType::Float32) {
    return make_launch_table_on_host(ranks, in_call_bounds(setting, {}, ranks))
        .find({.bytes = bytes, .dtype = dtype})
        .path;
  };
  EXPECT_EQ(path(2, 16384, 16384), LaunchPath::InCall);
  EXPECT_EQ(path(2, 16384, 16385), LaunchPath::Launched);
  EXPECT_EQ(path(2, 16384, 8192, DType::BFloat16), LaunchPath::InCall);
  EXPECT_EQ(path(2, 16384, 8194, DType::BFloat16), LaunchPath::Launched);
  EXPECT_EQ(path(4, 65536, 16384), LaunchPath::InCall);
  EXPECT_EQ(path(4, 65536, 16388), LaunchPath::Launched);
  EXPECT_EQ(path(8, 65536, 8192), LaunchPath::Launched);
  EXPECT_EQ(path(1, 65536, 0), LaunchPath::Launched);
  EXPECT_EQ(path(2, 0, 0), LaunchPath::Launched);
  // What has a codec is the worker's.
  EXPECT_EQ(
      make_launch_table_on_host(2, {16384, 8192}).find({.bytes = 64, .codec = Codec::Q8}).path,
      LaunchPath::Launched);
}

TEST(LaunchTableBuilder, IsWhatExplainTells) {
  const GpuTuningTable tuning = default_gpu_tuning();
  for (const std::uint32_t ranks : {2u, 4u, 8u}) {
    const LaunchTable table = table_of(ranks);
    for (std::uint64_t bytes = 64; bytes <= mib(64); bytes *= 2) {
      for (const DType dtype : {DType::Float16, DType::Int32}) {
        const Explanation why = explain(tuning, std::nullopt, ranks, bytes, dtype, true);
        switch (table.find({.bytes = bytes, .dtype = dtype}).path) {
          case LaunchPath::InStream:
            EXPECT_EQ(why.chosen, "in_stream");
            break;
          case LaunchPath::Resident:
            EXPECT_EQ(why.chosen, "resident");
            break;
          case LaunchPath::Alone:
          case LaunchPath::InCall:
            FAIL() << "not between several GPUs";
            break;
          case LaunchPath::Launched:
            EXPECT_EQ(why.chosen, name_of(choose(tuning, std::nullopt, ranks, bytes)));
            break;
        }
      }
    }
  }
}

constexpr CudaAlgorithm kTwoShot = CudaAlgorithm::TwoShot;

// Only the last one has to take what is left; a plan for what nothing serves is refused by name.
TEST(LaunchTableBuilder, GivesNoRowACodecOrCollectiveThatItsKernelsDoNotServe) {
  for (const std::uint32_t ranks : {1U, 2U, 4U, kMaxGpuRanks}) {
    const LaunchTable table =
        make_launch_table({.ranks = ranks,
                           .atomic_128b_stores = true,
                           .in_stream_blocks = kMaxInStreamBlocks,
                           .launched = {{.most_bytes = mib(1), .algorithm = kTwoShot},
                                        {.algorithm = CudaAlgorithm::Stream}}});
    ASSERT_EQ(table.ranks(), ranks);
    const std::vector<LaunchRow>& rows = table.rows();
    for (std::size_t i = 0; i + 1 < rows.size(); ++i) {
      const bool is_coded = rows[i].path == LaunchPath::InStream && rows[i].ops != kAllOps;
      if (is_coded) {
        EXPECT_EQ(rows[i].codecs & bit_of(Codec::None), 0) << "row " << i;
        EXPECT_EQ(rows[i].ops, kInStreamCodecOps) << "row " << i;
      } else {
        EXPECT_EQ(rows[i].codecs, bit_of(Codec::None)) << "row " << i;
      }
      if (rows[i].path == LaunchPath::Launched) continue;
      EXPECT_EQ(rows[i].collectives, bit_of(Collective::AllReduce)) << "row " << i;
    }
  }
}

TEST(LaunchTableBuilder, TellsWhatIsLaunchedUpToWhichSize) {
  const LaunchTable table =
      make_launch_table({.ranks = 2,
                         .launched = {{.most_bytes = mib(1), .algorithm = kTwoShot},
                                      {.algorithm = CudaAlgorithm::Stream}}});
  EXPECT_EQ(stretches_of(table, DType::Int8),
            (std::vector<LaunchStretch>{{LaunchPath::Resident, kib(128)},
                                        {LaunchPath::Launched, mib(1), kTwoShot},
                                        {LaunchPath::Launched, kAnyBytes, CudaAlgorithm::Stream}}));
  EXPECT_EQ(launched_algorithm(table.find_launched({.bytes = 4})), kTwoShot)
      << "also where the resident grid is asked first";
  EXPECT_EQ(LaunchTable::decode(table.encode()).value(), table);
}

TEST(LaunchTableBuilder, BetweenNodesTheDaemonLaunchesEverythingAndTellsTheAlgorithmOfThere) {
  const LaunchTable table = make_launch_table_between_nodes(
      {.ranks = 5, .nodes = 3, .on_gpus = true}, NetworkAlgorithm::Exchange);
  EXPECT_EQ(table.ranks(), 5u);
  for (const DType dtype : {DType::Float32, DType::Int8}) {
    EXPECT_EQ(stretches_of(table, dtype),
              (std::vector<LaunchStretch>{{.path = LaunchPath::Launched,
                                           .most_bytes = kAnyBytes,
                                           .between_nodes = NetworkAlgorithm::Exchange}}));
  }
  EXPECT_EQ(LaunchTable::decode(table.encode()).value(), table);
}

TEST(LaunchTableBuilder, BetweenNodesWhatHasACodecIsLaunchedToo) {
  const RanksOnNodes where{.ranks = 2, .nodes = 2, .on_gpus = true};
  const LaunchTable table = make_launch_table_between_nodes(where, NetworkAlgorithm::Exchange);
  const LaunchTable without =
      make_launch_table_between_nodes(where, NetworkAlgorithm::Exchange, {.gpu_codecs = false});
  for (const Codec codec : kRealCodecs) {
    const LaunchKey key{.bytes = mib(1), .dtype = DType::BFloat16, .codec = codec};
    EXPECT_TRUE(table.takes_codec(key));
    EXPECT_EQ(table.find(key).path, LaunchPath::Launched);
    EXPECT_FALSE(without.takes_codec(key)) << "a node does not allow it";
    EXPECT_FALSE(table.takes_codec({.dtype = DType::Int32, .codec = codec}));
    EXPECT_FALSE(table.takes_codec({.op = ReduceOp::Max, .codec = codec}));
    EXPECT_TRUE(
        make_launch_table(
            {.ranks = 2, .atomic_128b_stores = true, .in_stream_blocks = kMaxInStreamBlocks})
            .takes_codec(key));
    EXPECT_FALSE(make_launch_table({.ranks = 2}).takes_codec(key)) << "nothing is in-stream";
  }
}

TEST(LaunchTableBuilder, BetweenNodesEachCodecThatPaysIsServed) {
  for (const std::uint32_t nodes : {2u, 3u, 8u}) {
    const LaunchTable table = make_launch_table_between_nodes(
        {.ranks = 8, .nodes = nodes, .on_gpus = true}, NetworkAlgorithm::Exchange);
    EXPECT_EQ(table.coding().size(), kRealCodecs.size());
    for (const CodingRow& row : table.coding()) {
      EXPECT_EQ(row.times, 1) << "an exchange quantizes once";
      for (const DType dtype : {DType::Float16, DType::BFloat16, DType::Float32})
        EXPECT_TRUE(
            table.takes_codec({.bytes = row.least_bytes, .dtype = dtype, .codec = row.codec}));
    }
    EXPECT_EQ(LaunchTable::decode(table.encode()).value(), table);
  }
}

TEST(LaunchTableBuilder, KeepsTheLastStretchOfMoreThanItHoldsRowsFor) {
  std::vector<LaunchedStretch> many;
  for (std::uint64_t i = 1; i <= 2 * kMaxLaunchRows; ++i)
    many.push_back({.most_bytes = mib(i), .algorithm = kTwoShot});
  many.push_back({.algorithm = CudaAlgorithm::Stream});
  const LaunchTable table = make_launch_table({.ranks = 2, .launched = many});
  EXPECT_EQ(table.rows().size(), kMaxLaunchRows);
  EXPECT_EQ(launched_algorithm(table.find_launched({.bytes = mib(1)})), kTwoShot);
  EXPECT_EQ(launched_algorithm(table.find_launched({.bytes = mib(500)})), CudaAlgorithm::Stream);
}

TEST(LaunchTableBuilder, TellsStretchesFromTheSmallestSizeOn) {
  EXPECT_EQ(stretches_of(table_of(2), DType::Float32),
            (std::vector<LaunchStretch>{{LaunchPath::InStream, mib(16)},
                                        {LaunchPath::Launched, kAnyBytes, kTwoShot}}));
  EXPECT_EQ(stretches_of(table_of(2, 96, false), DType::Float32),
            (std::vector<LaunchStretch>{{LaunchPath::InStream, kib(64)},
                                        {LaunchPath::Resident, kib(128)},
                                        {LaunchPath::Launched, kAnyBytes, kTwoShot}}));
  EXPECT_EQ(stretches_of(table_of(4), DType::Int8),
            (std::vector<LaunchStretch>{{LaunchPath::Resident, kib(32)},
                                        {LaunchPath::Launched, kAnyBytes, kTwoShot}}));
  EXPECT_EQ(stretches_of(table_of(1), DType::Int8),
            (std::vector<LaunchStretch>{{LaunchPath::Alone, kAnyBytes}}));
}

}  // namespace
}  // namespace arcomm
