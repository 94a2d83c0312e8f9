#include "proto/gpu/launch_table.h"

#include <gtest/gtest.h>

#include <random>
#include <string>
#include <vector>

#include "proto/host/in_call.h"

namespace arcomm {
namespace {

constexpr std::uint16_t kFloats =
    bit_of(DType::Float16) | bit_of(DType::BFloat16) | bit_of(DType::Float32);

LaunchRow in_stream_row(std::uint64_t most_bytes, std::uint32_t bytes_per_block = 4096,
                        std::uint32_t most_blocks = 16) {
  return {.most_bytes = most_bytes,
          .dtypes = kFloats,
          .codecs = bit_of(Codec::None),
          .path = LaunchPath::InStream,
          .algorithm = InStreamAlgorithm::OneShotLl16,
          .bytes_per_block = bytes_per_block,
          .most_blocks = most_blocks};
}

LaunchTable sample() {
  return LaunchTable::create(
             2, {in_stream_row(65536),
                 {.most_bytes = 131072, .codecs = kResidentCodecs, .path = LaunchPath::Resident},
                 {}})
      .value();
}

TEST(LaunchTable, TakesTheFirstRowThatFits) {
  const LaunchTable table = sample();
  EXPECT_EQ(table.find({.bytes = 65536, .dtype = DType::Float16}).path, LaunchPath::InStream);
  EXPECT_EQ(table.find({.bytes = 65537, .dtype = DType::Float16}).path, LaunchPath::Resident);
  EXPECT_EQ(table.find({.bytes = 64, .dtype = DType::Int32}).path, LaunchPath::Resident);
  EXPECT_EQ(table.find({.bytes = 131073, .dtype = DType::Int8}).path, LaunchPath::Launched);
  EXPECT_EQ(table.find({.bytes = ~0ull}).path, LaunchPath::Launched);
  EXPECT_EQ(table.find({.bytes = 65537}).in_stream.blocks, 0u) << "only of what is in-stream";
}

TEST(LaunchTable, SaysForHowManyBytesCallsMeet) {
  EXPECT_EQ(sample().most_in_call_bytes(), 0u) << "none of its operations are in-call";
  const LaunchRow row{.most_bytes = 5000,
                      .codecs = kInCallCodecs,
                      .collectives = kInCallCollectives,
                      .path = LaunchPath::InCall};
  LaunchRow of_halves = row;
  of_halves.most_bytes = 2500;
  of_halves.dtypes = bit_of(DType::Float16);
  const LaunchTable table = LaunchTable::create(3, {of_halves, row, {}}).value();
  EXPECT_EQ(table.most_in_call_bytes(), 5000u);
}

// One behind the other, each long enough for what its rank sends, and nothing behind the last.
TEST(InCallLayout, HasAreasOfWholePagesAndNothingMore) {
  for (const std::uint64_t bytes : {1, 4095, 4096, 4097, 5000, 65536}) {
    const InCallLayout layout(3, bytes);
    const std::uint64_t area = layout.area_offset(0, 1) - layout.area_offset(0, 0);
    EXPECT_EQ(layout.area_offset(0, 0), kInCallControlBytes);
    EXPECT_EQ(area % 4096, 0u);
    EXPECT_GE(area, bytes);
    EXPECT_LT(area, bytes + 4096);
    EXPECT_EQ(layout.area_offset(1, 0), layout.area_offset(0, 1) + area);
    EXPECT_EQ(layout.bytes(), layout.area_offset(2, 1) + area);
  }
}

TEST(LaunchTable, TellsCollectivesApart) {
  const auto other = static_cast<Collective>(kCollectives);
  const LaunchRow row{.collectives = bit_of(other), .launched = 3};
  const LaunchTable table = LaunchTable::create(2, {row, {}}).value();
  EXPECT_EQ(table.find_launched({.bytes = 64}), 0u);
  EXPECT_EQ(table.find_launched({.bytes = 64, .collective = other}), 3u);
  EXPECT_EQ(LaunchTable::decode(table.encode()).value(), table);
}

TEST(LaunchTable, GivesABlockForEachPartThatIsBegunAndAlwaysOne) {
  const LaunchRow row = in_stream_row(1 << 20, 4096, 16);
  EXPECT_EQ(row.blocks(0), 1u) << "an operation of no elements meets the others', too";
  EXPECT_EQ(row.blocks(1), 1u);
  EXPECT_EQ(row.blocks(4096), 1u);
  EXPECT_EQ(row.blocks(4097), 2u);
  EXPECT_EQ(row.blocks(1 << 20), 16u);
  EXPECT_EQ(row.blocks(~0ull), 16u);
}

TEST(LaunchTable, OfNoElementsGoesWhereItsTypeBegins) {
  EXPECT_EQ(sample().find({.bytes = 0, .dtype = DType::Float32}).in_stream.blocks, 1u);
  EXPECT_EQ(sample().find({.bytes = 0, .dtype = DType::Int64}).path, LaunchPath::Resident);
}

TEST(LaunchTable, IsTheSameAfterItsWayThroughAMessage) {
  const Result<LaunchTable> read = LaunchTable::decode(sample().encode());
  ASSERT_TRUE(read.ok()) << read.error().message;
  EXPECT_EQ(*read, sample());
  EXPECT_EQ(read->ranks(), 2u);
}

TEST(LaunchTable, NamesTheKernelOfWhatIsLaunched) {
  const LaunchTable table =
      LaunchTable::create(
          2, {in_stream_row(65536),
              {.most_bytes = 131072, .codecs = kResidentCodecs, .path = LaunchPath::Resident},
              {.most_bytes = 1 << 20, .launched = 5},
              {.launched = 2}})
          .value();
  EXPECT_EQ(table.find_launched({.bytes = 1 << 20}), 5u);
  EXPECT_EQ(table.find_launched({.bytes = (1 << 20) + 1}), 2u);
  EXPECT_EQ(table.find_launched({.bytes = 4}), 5u) << "another path takes it first";
  EXPECT_EQ(LaunchTable::decode(table.encode()).value(), table);
}

TEST(LaunchTable, GivesAnErrorClassTheFirstCodecThatPaysAndHonoursIt) {
  const LaunchTable table =
      LaunchTable::create(
          2, {{}},
          {{.codec = Codec::Q4, .least_bytes = 1 << 21},
           {.codec = Codec::Q6, .least_bytes = 1 << 20, .times = 2},
           {.codec = Codec::Fp8, .least_bytes = 1 << 20, .dtypes = bit_of(DType::BFloat16)}})
          .value();
  const auto codec_for = [&](double decibels, std::uint64_t bytes, DType dtype = DType::BFloat16,
                             ReduceOp op = ReduceOp::Sum) {
    return table.codec_for({.least_snr_db = decibels}, {.bytes = bytes, .dtype = dtype, .op = op});
  };
  EXPECT_EQ(codec_for(20, 1 << 21), Codec::Q4);
  EXPECT_EQ(codec_for(20, 1 << 20), Codec::Q6) << "q4 does not pay there";
  EXPECT_EQ(codec_for(20, 1 << 19), Codec::None);
  EXPECT_EQ(codec_for(30, 1 << 21), Codec::Q6);
  EXPECT_EQ(codec_for(31, 1 << 21), Codec::Fp8) << "q6 quantizes twice: 3 dB less";
  EXPECT_EQ(codec_for(31, 1 << 21, DType::Float16), Codec::None);
  EXPECT_EQ(codec_for(40, 1 << 30), Codec::None);
  EXPECT_EQ(codec_for(20, 1 << 30, DType::Int32), Codec::None) << "no codec serves it";
  EXPECT_EQ(codec_for(20, 1 << 30, DType::Float32, ReduceOp::Max), Codec::None);
  EXPECT_EQ(LaunchTable::decode(table.encode()).value(), table);
  EXPECT_EQ(sample().codec_for({.least_snr_db = 1}, {.bytes = 1 << 30}), Codec::None);
}

TEST(LaunchTable, RefusesRowsOfCodecsThatCannotBe) {
  const auto refused = [](const CodingRow& row) {
    return !LaunchTable::create(2, {{}}, {row}).ok();
  };
  EXPECT_FALSE(refused({.codec = Codec::Q4}));
  EXPECT_TRUE(refused({.codec = Codec::None}));
  EXPECT_TRUE(refused({.codec = static_cast<Codec>(kCodecs)}));
  EXPECT_TRUE(refused({.codec = Codec::Q4, .times = 0}));
  EXPECT_TRUE(refused({.codec = Codec::Q4, .times = 3}));
  EXPECT_FALSE(
      LaunchTable::create(2, {{}}, std::vector<CodingRow>(kMaxCodingRows + 1, {.codec = Codec::Q4}))
          .ok());
}

TEST(LaunchTable, RefusesAnotherVersionByName) {
  std::string bytes = sample().encode();
  bytes[0] = static_cast<char>(kLaunchTableVersion + 1);
  const Result<LaunchTable> newer = LaunchTable::decode(bytes);
  ASSERT_FALSE(newer.ok());
  EXPECT_EQ(newer.error().reason, Reason::Version);
  EXPECT_NE(newer.error().message.find("version " + std::to_string(kLaunchTableVersion + 1)),
            std::string::npos)
      << newer.error().message;
  const Result<LaunchTable> none = LaunchTable::decode("");
  ASSERT_FALSE(none.ok());
  EXPECT_EQ(none.error().reason, Reason::Version) << "a daemon from before there were any";
}

TEST(LaunchTable, RefusesRowsThatCannotBe) {
  const auto refused = [](std::uint32_t ranks, std::vector<LaunchRow> rows) {
    return !LaunchTable::create(ranks, std::move(rows)).ok();
  };
  EXPECT_TRUE(refused(0, {{}}));
  EXPECT_TRUE(refused(65, {{}}));
  EXPECT_TRUE(refused(2, {}));
  EXPECT_TRUE(refused(2, std::vector<LaunchRow>(kMaxLaunchRows + 1)));
  EXPECT_TRUE(refused(2, {in_stream_row(4096)})) << "nothing takes the rest";
  EXPECT_TRUE(
      refused(2, {{.most_bytes = 4096, .codecs = kResidentCodecs, .path = LaunchPath::Resident}}));
  EXPECT_TRUE(refused(1, {in_stream_row(4096), {}}));
  EXPECT_TRUE(refused(kMaxGpuRanks + 1, {in_stream_row(4096), {}}));
  EXPECT_TRUE(refused(2, {in_stream_row(4096, 0), {}}));
  EXPECT_TRUE(refused(2, {in_stream_row(4096, 4096, 0), {}}));
  EXPECT_TRUE(refused(2, {in_stream_row(4096, 4096, kMaxInStreamBlocks + 1), {}}));
  LaunchRow row = in_stream_row(4096);
  row.dtypes = kAllDTypes;
  EXPECT_TRUE(refused(2, {row, {}})) << "there is no such kernel";
  row = in_stream_row(4096);
  row.algorithm = static_cast<InStreamAlgorithm>(kInStreamAlgorithms);
  EXPECT_TRUE(refused(2, {row, {}}));
  EXPECT_TRUE(refused(2, {{.most_bytes = 1, .path = static_cast<LaunchPath>(3)}, {}}));
}

// A codec, and the collective that comes next: rows that took them would run them through kernels
// that move an AllReduce's own bits.
TEST(LaunchTable, RefusesWhatNoKernelOfThePathServesByItsName) {
  const auto next_collective =
      static_cast<std::uint8_t>(kAllCollectives | bit_of(static_cast<Collective>(kCollectives)));
  for (LaunchRow row :
       {in_stream_row(4096),
        {.most_bytes = 4096, .codecs = kResidentCodecs, .path = LaunchPath::Resident}}) {
    EXPECT_TRUE(LaunchTable::create(2, {row, {}}).ok());
    const std::string path = row.path == LaunchPath::Resident ? "resident" : "in-stream";
    row.codecs = kAllCodecs;
    const Result<LaunchTable> coded = LaunchTable::create(2, {row, {}});
    ASSERT_FALSE(coded.ok()) << path;
    EXPECT_EQ(coded.error().message,
              "a launch table runs fp8 (number 1) " + path + ", for which there is no kernel");
    row.codecs = bit_of(Codec::None);
    row.collectives = next_collective;
    const Result<LaunchTable> collective = LaunchTable::create(2, {row, {}});
    ASSERT_FALSE(collective.ok()) << path;
    EXPECT_EQ(collective.error().message, "a launch table runs unknown collective (number 1) " +
                                              path + ", for which there is no kernel");
  }
}

TEST(LaunchTable, TakesCodecsInStreamOnlyAsTheirKernelsDo) {
  LaunchRow row = in_stream_row(4096);
  row.codecs = bit_of(Codec::Q6) | bit_of(Codec::Q6Rotated);
  row.ops = kInStreamCodecOps;
  row.algorithm = InStreamAlgorithm::PairLl128;
  const Result<LaunchTable> pair = LaunchTable::create(2, {row, {}});
  ASSERT_TRUE(pair.ok()) << pair.error().message;
  EXPECT_EQ(pair->find({.bytes = 64, .codec = Codec::Q6}).path, LaunchPath::InStream);
  EXPECT_EQ(pair->find({.bytes = 64}).path, LaunchPath::Launched) << "of no codec";
  EXPECT_EQ(pair->find({.bytes = 64, .codec = Codec::Q4}).path, LaunchPath::Launched);
  EXPECT_EQ(LaunchTable::decode(pair->encode()).value(), *pair);
  const Result<LaunchTable> more = LaunchTable::create(3, {row, {}});
  ASSERT_FALSE(more.ok());
  EXPECT_EQ(more.error().message, "a launch table has codecs in pair_ll128 between 3 ranks");
  row.ops = kAllOps;
  const Result<LaunchTable> products = LaunchTable::create(2, {row, {}});
  ASSERT_FALSE(products.ok());
  EXPECT_EQ(products.error().message,
            "a launch table runs prod (number 1) with a codec, for which there is no kernel");
}

TEST(LaunchTable, LeavesACommunicatorsOnlyRankAlone) {
  const LaunchRow alone{.codecs = bit_of(Codec::None), .path = LaunchPath::Alone};
  const Result<LaunchTable> table = LaunchTable::create(1, {alone, {}});
  ASSERT_TRUE(table.ok());
  EXPECT_EQ(table->find({.bytes = 1 << 30}).path, LaunchPath::Alone);
  EXPECT_FALSE(table->find({.bytes = 0}).needs_daemon());
  EXPECT_TRUE(table->find({.bytes = 64, .codec = Codec::Q8}).needs_daemon()) << "a copy is no q8";
  EXPECT_FALSE(LaunchTable::create(1, {{.path = LaunchPath::Alone}, {}}).ok());
  EXPECT_EQ(LaunchTable::decode(table->encode()).value(), *table);
  EXPECT_FALSE(LaunchTable::create(2, {alone, {}}).ok());
}

TEST(LaunchTable, SurvivesBytesOfAnyKind) {
  const std::string good = sample().encode();
  for (std::size_t length = 0; length < good.size(); ++length)
    EXPECT_FALSE(LaunchTable::decode(std::string_view(good).substr(0, length)).ok()) << length;
  EXPECT_FALSE(LaunchTable::decode(good + "x").ok());
  std::mt19937 random(20261123);
  for (int run = 0; run < 20'000; ++run) {
    std::string bytes = good;
    for (int i = 0; i < 3; ++i) bytes[random() % bytes.size()] = static_cast<char>(random());
    const Result<LaunchTable> read = LaunchTable::decode(bytes);
    if (!read) continue;
    for (const std::uint64_t size : {0ull, 1ull, 65536ull, ~0ull}) {
      const Launch launch = read->find({.bytes = size, .dtype = DType::BFloat16});
      EXPECT_EQ(launch.path == LaunchPath::InStream, launch.in_stream.blocks != 0);
      EXPECT_LE(launch.in_stream.blocks, kMaxInStreamBlocks);
    }
  }
}

}  // namespace
}  // namespace arcomm
