// What `arctl bench --accuracy` judges by, held against the golden codec; and what it reads and
// says.
#include "client/arctl/bench/accuracy/accuracy.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <fstream>
#include <limits>
#include <random>

#include "client/arctl/bench/codec_bound.h"
#include "client/arctl/bench/element.h"
#include "kernels/codec/golden.h"
#include "kernels/host/element.h"
#include "tests/support/scratch_folder.h"
#include "tests/unit/kernels/codec_samples.h"

namespace arcomm::arctl {
namespace {

using ::testing::HasSubstr;

std::vector<std::byte> bytes_of(const std::vector<float>& values, DType dtype = DType::Float32) {
  std::vector<std::byte> bytes(values.size() * size_of(dtype));
  for (std::size_t i = 0; i < values.size(); ++i)
    encode(dtype, values[i], bytes.data() + i * size_of(dtype));
  return bytes;
}

TEST(Accuracy, ItsBoundsAreTheGoldenCodecs) {
  std::vector<Block> blocks = adversarial_blocks();
  std::mt19937_64 random(11);
  for (int i = 0; i < 5000; ++i) blocks.push_back(random_block(random));
  for (const Codec codec : kRealCodecs) {
    for (const Block& block : blocks) {
      std::array<double, kCodecBlock> golden{}, own{};
      golden::error_bounds(codec, block, golden);
      codec_bounds(codec, block, own);
      for (std::size_t i = 0; i < own.size(); ++i) {
        if (!std::isfinite(golden[i])) continue;
        ASSERT_NEAR(own[i], golden[i], 1e-9 * golden[i]) << text_of(codec) << " value " << i;
      }
    }
  }
}

TEST(Accuracy, WritesHalvesAsTheKernelsDo) {
  std::mt19937_64 random(5);
  for (int i = 0; i < 200'000; ++i) {
    const auto bits = static_cast<std::uint32_t>(random());
    float value = std::bit_cast<float>(bits);
    if (i % 2 == 0) value = std::ldexp(static_cast<float>(bits % 4097), i % 48 - 34);
    if (std::isnan(value)) continue;
    std::uint16_t half = 0, brain = 0;
    encode(DType::Float16, value, reinterpret_cast<std::byte*>(&half));
    encode(DType::BFloat16, value, reinterpret_cast<std::byte*>(&brain));
    ASSERT_EQ(half, float16_from_float(value)) << value;
    ASSERT_EQ(brain, bfloat16_from_float(value)) << value;
  }
}

// Two ranks' golden sum.
std::vector<float> golden_sum(Codec codec, const std::vector<std::vector<float>>& inputs) {
  std::vector<float> sum(inputs[0].size());
  for (const std::vector<float>& input : inputs) {
    for (std::size_t at = 0; at < sum.size(); at += kCodecBlock) {
      Block decoded{};
      golden::round_trip(codec, golden::Values(&input[at], kCodecBlock), decoded);
      for (std::size_t i = 0; i < kCodecBlock; ++i) sum[at + i] += decoded[i];
    }
  }
  return sum;
}

TEST(Accuracy, FindsTheGoldenCodecWithinItsBoundsAndCloseToThem) {
  const std::uint64_t count = 64 * kCodecBlock;
  for (const AccuracyData data : kMadeUpData) {
    const std::vector<std::vector<float>> inputs = {make_data(data, 0, count, DType::Float32),
                                                    make_data(data, 1, count, DType::Float32)};
    for (const Codec codec : kRealCodecs) {
      const AccuracyFound found = judge(inputs, bytes_of(golden_sum(codec, inputs)).data(),
                                        DType::Float32, ReduceOp::Sum, codec);
      EXPECT_EQ(found.beyond, 0u) << text_of(codec) << " on " << text_of(data);
      EXPECT_EQ(found.elements, count);
      EXPECT_LE(found.most_of_bound, 1);
      EXPECT_GT(found.most_of_bound, 0.2) << "it measures something";
    }
  }
}

TEST(Accuracy, CountsEveryElementBeyondItsBound) {
  const std::vector<std::vector<float>> inputs = {
      make_data(AccuracyData::Gaussian, 0, 96, DType::Float32),
      make_data(AccuracyData::Gaussian, 1, 96, DType::Float32)};
  std::vector<float> sum(96);
  for (std::size_t i = 0; i < sum.size(); ++i) sum[i] = inputs[0][i] + inputs[1][i];
  EXPECT_EQ(judge(inputs, bytes_of(sum).data(), DType::Float32, ReduceOp::Sum, Codec::None).beyond,
            0u);
  sum[5] += 0.01F;
  sum[77] = std::numeric_limits<float>::quiet_NaN();
  const auto beyond = [&](Codec codec) {
    return judge(inputs, bytes_of(sum).data(), DType::Float32, ReduceOp::Sum, codec).beyond;
  };
  EXPECT_EQ(beyond(Codec::None), 2u);
  EXPECT_EQ(beyond(Codec::Q4), 1u) << "0.01 is within what q4 may be off by";
}

TEST(Accuracy, AllowsTheRoundingOfTheTypeAndNoMore) {
  for (const DType dtype : {DType::Float16, DType::BFloat16, DType::Float32}) {
    const std::vector<std::vector<float>> inputs = {
        make_data(AccuracyData::OutlierChannels, 0, 4096, dtype),
        make_data(AccuracyData::OutlierChannels, 1, 4096, dtype)};
    std::vector<float> sum(4096);
    for (std::size_t i = 0; i < sum.size(); ++i) sum[i] = inputs[0][i] + inputs[1][i];
    std::vector<std::byte> rounded = bytes_of(sum, dtype);
    const auto found = [&] {
      return judge(inputs, rounded.data(), dtype, ReduceOp::Sum, Codec::None);
    };
    EXPECT_EQ(found().beyond, 0u) << dtype;
    EXPECT_GT(found().most_of_bound, dtype == DType::Float32 ? 0.2 : 0.9) << dtype;
    rounded[size_of(dtype) * 77] ^= std::byte{16};  // sixteen steps, of an outlier
    EXPECT_EQ(found().beyond, 1u) << dtype;
  }
}

TEST(Accuracy, TellsSignalOverNoiseAndBias) {
  const std::vector<std::vector<float>> inputs = {std::vector<float>(64, 3),
                                                  std::vector<float>(64, 7)};
  const AccuracyFound found = judge(inputs, bytes_of(std::vector<float>(64, 10.1F)).data(),
                                    DType::Float32, ReduceOp::Sum, Codec::Q4);
  EXPECT_NEAR(found.snr_db(), 40, 0.01);
  EXPECT_NEAR(found.bias(), 0.01, 1e-5);
  EXPECT_NEAR(found.most_of_largest, 0.01, 1e-5);
}

TEST(Accuracy, AnElementBeyondItsBoundMakesItFail) {
  AccuracyRow row;
  EXPECT_TRUE(accuracy_verdict({row, row}).ok());
  row.found.beyond = 3;
  const Status verdict = accuracy_verdict({{}, row});
  ASSERT_FALSE(verdict.ok());
  EXPECT_EQ(verdict.error().code, ErrorCode::DataLoss);
  EXPECT_THAT(verdict.error().message, HasSubstr("3 elements"));
}

TEST(Accuracy, EveryRankHasValuesOfItsOwnAndTheSameOnEveryRun) {
  for (const AccuracyData data : kMadeUpData) {
    const auto first = make_data(data, 0, 256, DType::BFloat16);
    EXPECT_EQ(bytes_of(first), bytes_of(make_data(data, 0, 256, DType::BFloat16))) << text_of(data);
    EXPECT_NE(bytes_of(first), bytes_of(make_data(data, 1, 256, DType::BFloat16))) << text_of(data);
  }
}

void write_floats(const std::string& path, const std::vector<float>& values, int more_bytes = 0) {
  std::ofstream file(path, std::ios::binary);
  file.write(reinterpret_cast<const char*>(values.data()),
             static_cast<std::streamsize>(values.size() * sizeof(float)));
  for (int i = 0; i < more_bytes; ++i) file.put('x');
}

TEST(Accuracy, GivesEachRankItsPartOfARecording) {
  const support::ScratchFolder folder;
  std::vector<float> values(81);
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i);
  write_floats(folder / "data", values);
  const Result<RecordedData> data = RecordedData::read(folder / "data", 2);
  ASSERT_TRUE(data.ok()) << data.error().message;
  EXPECT_EQ(data->count(), 40u);
  EXPECT_EQ(data->of(0, DType::Float32)[39], 39);
  EXPECT_EQ(data->of(1, DType::Float32)[0], 40);
}

TEST(Accuracy, SaysWhatIsWrongWithARecording) {
  const support::ScratchFolder folder;
  const auto why = [&](const std::string& name) {
    const Result<RecordedData> data = RecordedData::read(folder / name, 2);
    return data ? "nothing" : data.error().message;
  };
  EXPECT_THAT(why("missing"), HasSubstr("cannot be opened"));
  write_floats(folder / "short", std::vector<float>(63));
  EXPECT_THAT(why("short"), HasSubstr("has 63 float32 values: 2 ranks need 32 each"));
  write_floats(folder / "torn", std::vector<float>(64), 3);
  EXPECT_THAT(why("torn"), HasSubstr("no whole number"));
  std::vector<float> values(64);
  values[7] = std::numeric_limits<float>::infinity();
  write_floats(folder / "infinite", values);
  EXPECT_THAT(why("infinite"), HasSubstr("value 7 is not finite"));
}

TEST(Accuracy, RefusesWhatNoCodecServes) {
  const auto why = [](const AccuracyOptions& options) {
    const Result<AccuracyPlan> plan = accuracy_plan_of(options);
    return plan ? "nothing" : plan.error().message;
  };
  EXPECT_THAT(why({.dtype = "int32"}), HasSubstr("codecs serve sum and avg"));
  EXPECT_THAT(why({.op = "max"}), HasSubstr("codecs serve sum and avg"));
  EXPECT_THAT(why({.codec = "q5"}), HasSubstr("unknown codec: q5"));
  EXPECT_THAT(why({.ranks = 9}), HasSubstr("2 to 8 ranks"));
  EXPECT_EQ(accuracy_plan_of({})->codecs.size(), kCodecs);
  EXPECT_EQ(accuracy_plan_of({.codec = "q6"})->codecs, std::vector<Codec>{Codec::Q6});
}

}  // namespace
}  // namespace arcomm::arctl
