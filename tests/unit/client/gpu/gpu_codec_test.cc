// Codecs of in-stream operations: which is served, and when its kernels are loaded.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/unit/client/gpu/gpu_in_stream_fixture.h"

namespace arcomm::client {
namespace {

class GpuCodecTest : public GpuInStreamTest {
 protected:
  static LaunchTable with_codecs(std::uint32_t ranks = 2) {
    return LaunchTable::create(ranks,
                               {{.most_bytes = kMostInStream,
                                 .dtypes = bit_of(DType::Float32),
                                 .codecs = bit_of(Codec::None),
                                 .path = LaunchPath::InStream,
                                 .bytes_per_block = 4096,
                                 .most_blocks = 16},
                                {.most_bytes = 1 << 20,
                                 .dtypes = bit_of(DType::Float32),
                                 .ops = kInStreamCodecOps,
                                 .codecs = bit_of(Codec::Q6),
                                 .path = LaunchPath::InStream,
                                 .algorithm = coded_algorithm(ranks),
                                 .bytes_per_block = 16384,
                                 .most_blocks = 32},
                                {}},
                               {{.codec = Codec::Q4}, {.codec = Codec::Q6, .least_bytes = 1 << 18}})
        .value();
  }
  GpuCodecTest() {
    Result<std::unique_ptr<GpuExchange>> exchange = open(in_stream_exchange_bytes(2));
    EXPECT_TRUE(exchange.ok());
    make(std::move(*exchange), PostMode::Kernel, with_codecs());
  }
  CollectiveCall coded(std::uint64_t count, Codec codec = Codec::Q6) {
    CollectiveCall made = call(count);
    made.codec = codec;
    return made;
  }
  void expect_refused(const OperationSpec& what, Codec codec, const std::string& part) {
    const Status refused = member->check_codec(what, codec);
    ASSERT_FALSE(refused.ok());
    EXPECT_EQ(refused.error().reason, Reason::Unsupported);
    EXPECT_NE(refused.error().message.find(part), std::string::npos) << refused.error().message;
  }
};

TEST_F(GpuCodecTest, LoadsACodecsKernelsBeforeItsFirstLaunchAndTellsTheRanks) {
  EXPECT_TRUE(gpu->codecs.empty()) << "nobody has asked";
  ASSERT_TRUE(all_reduce(2048).ok());
  EXPECT_TRUE(gpu->codecs.empty());
  ASSERT_TRUE(all_reduce(coded(65536)).ok());
  ASSERT_EQ(gpu->codecs, std::vector{Codec::Q6});
  const FakeGpu::InStreamStart& start = gpu->in_stream_starts.back();
  EXPECT_EQ(start.shape.algorithm, InStreamAlgorithm::PairLl128);
  EXPECT_EQ(start.shape.blocks, 16u);
  EXPECT_EQ(start.call.codec(), Codec::Q6);
  EXPECT_EQ(start.call.op(), ReduceOp::Sum);
  EXPECT_EQ(gpu->in_stream_starts.front().call.codec(), Codec::None);
}

TEST_F(GpuCodecTest, LaunchesNothingWhoseKernelsDoNotLoad) {
  gpu->unloadable = Codec::Q6;
  const Status failed = all_reduce(coded(64));
  EXPECT_EQ(failed.error().reason, Reason::Version);
  EXPECT_TRUE(gpu->in_stream_starts.empty());
  EXPECT_TRUE(all_reduce(64).ok()) << "what asks for none goes on";
}

TEST_F(GpuCodecTest, LoadsADefaultCodecAhead) {
  ASSERT_TRUE(member->prepare_codec(Codec::None).ok());
  EXPECT_TRUE(gpu->codecs.empty());
  ASSERT_TRUE(member->prepare_codec(Codec::Q6).ok());
  EXPECT_EQ(gpu->codecs, std::vector{Codec::Q6});
  EXPECT_EQ(member->prepare_codec(Codec::Q4).error().reason, Reason::Unsupported);
}

TEST_F(GpuCodecTest, SaysWhyACodecIsNotServed) {
  EXPECT_TRUE(member->check_codec(call(64), Codec::Q6).ok());
  EXPECT_TRUE(member->check_codec(call(1 << 18), Codec::Q6).ok());
  expect_refused(call((1 << 18) + 1), Codec::Q6,
                 "codec q6 does not serve 1048580 bytes of float32 here, only up to 1048576");
  expect_refused(call(64), Codec::Q8, "the daemon's gpu.codecs is off, or its GPUs' stores");
  make(nullptr);
  expect_refused(call(64), Codec::Q6, "on GPUs codecs are in-stream, and nothing of it is");
  make_alone();
  expect_refused(call(64), Codec::Q6, "a rank alone on a GPU: ask for no codec");
}

TEST_F(GpuCodecTest, BetweenNodesTheDaemonHasTheKernels) {
  const LaunchRow with_codec{.dtypes = bit_of(DType::Float32),
                             .ops = kInStreamCodecOps,
                             .codecs = kAllCodecs & ~bit_of(Codec::None)};
  make(nullptr, PostMode::Kernel, LaunchTable::create(2, {with_codec, {}}).value());
  EXPECT_TRUE(member->check_codec(call(64), Codec::Q6).ok());
  ASSERT_TRUE(member->prepare_codec(Codec::Q6).ok());
  EXPECT_TRUE(gpu->codecs.empty());
  EXPECT_TRUE(member->launch_of(coded(64)).needs_daemon());
}

// The words are the daemon's, the same on all nodes.
TEST_F(GpuCodecTest, NamesTheNodeThatAllowsNoCodecs) {
  why_no_codecs = "node node-b (10.0.0.2:7400) does not allow codecs: gpu.codecs is off there";
  make(nullptr, PostMode::Kernel, LaunchTable::create(2, {{}}).value());
  expect_refused(call(64), Codec::Q6,
                 "codec q6 does not serve this communicator: node node-b (10.0.0.2:7400) does not "
                 "allow codecs: gpu.codecs is off there; ask for no codec");
}

TEST_F(GpuCodecTest, GivesAnErrorClassOnlyWhatIsServed) {
  const ErrorClass wanted{.least_snr_db = 20};
  EXPECT_EQ(member->codec_for(wanted, call(64)), Codec::None)
      << "q4 pays by the table, and no row serves it";
  const ErrorClass better{.least_snr_db = 30};
  EXPECT_EQ(member->codec_for(better, call(1 << 15)), Codec::None) << "it does not pay yet";
  EXPECT_EQ(member->codec_for(better, call(1 << 16)), Codec::Q6);
  EXPECT_EQ(member->codec_for(better, call((1 << 18) + 1)), Codec::None) << "too long";
}

}  // namespace
}  // namespace arcomm::client
