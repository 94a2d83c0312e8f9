#include "daemon/operator/explanation.h"

#include <gmock/gmock.h>

namespace arcomm {
namespace {

using testing::HasSubstr;

v1::ExplainRequest question(std::int32_t ranks, std::uint32_t nodes = 1) {
  v1::ExplainRequest request;
  request.set_bytes(1 << 20);
  request.set_dtype(static_cast<std::uint32_t>(DType::Float32));
  request.set_ranks(ranks);
  request.set_nodes(nodes);
  return request;
}

TEST(ExplainAllReduce, NamesTheChoiceAndTheTableItComesFrom) {
  const InForce in_force(Loaded{});
  const Result<v1::ExplainReply> two = explain_all_reduce(question(0), false, in_force);
  ASSERT_TRUE(two) << two.error().message;
  EXPECT_THAT(two->text(),
              testing::StartsWith("2 x 1 MiB float32: "));  // where the question does not say
  EXPECT_FALSE(two->chosen().empty());
  EXPECT_EQ(two->table(), in_force.tuning()->source);
}

TEST(ExplainAllReduce, IsAboutTheNetworkWhereThereAreSeveralNodes) {
  const InForce in_force(Loaded{});
  const Result<v1::ExplainReply> four = explain_all_reduce(question(0, 4), false, in_force);
  ASSERT_TRUE(four) << four.error().message;
  EXPECT_THAT(four->text(), HasSubstr("4 nodes"));
  EXPECT_EQ(four->table(), in_force.network_tuning()->source);
}

TEST(ExplainAllReduce, OfGpusOfSeveralNodesSaysWhatBecomesOfACodec) {
  const InForce in_force(Loaded{});
  v1::ExplainRequest asked = question(0, 2);
  asked.set_codec(static_cast<std::uint32_t>(Codec::Q8));
  const Result<v1::ExplainReply> coded = explain_all_reduce(asked, true, in_force);
  ASSERT_TRUE(coded) << coded.error().message;
  EXPECT_EQ(coded->codec(), "q8");
  EXPECT_EQ(coded->chosen(), "exchange");
  EXPECT_THAT(coded->text(), HasSubstr("partial results travel as q8"));
  EXPECT_THAT(coded->codec_why(), HasSubstr("q8 at every size, as asked: by exchange, 8.5 bits"));
  EXPECT_THAT(coded->codec_why(), HasSubstr("gpu.codecs is on at every node of the communicator"));
  asked.set_dtype(static_cast<std::uint32_t>(DType::Int32));
  const Result<v1::ExplainReply> none = explain_all_reduce(asked, true, in_force);
  ASSERT_TRUE(none) << none.error().message;
  EXPECT_EQ(none->codec(), "none");
  EXPECT_THAT(none->text(), HasSubstr("partial results travel as int32"));
}

TEST(ExplainAllReduce, OfGpusOfSeveralNodesSaysThatThisNodeAllowsNoCodec) {
  Loaded loaded;
  loaded.settings.gpu.codecs = false;
  loaded.settings.net.name = "node-x";
  const InForce in_force(std::move(loaded));
  v1::ExplainRequest asked = question(0, 2);
  asked.set_codec(static_cast<std::uint32_t>(Codec::Q8));
  const Result<v1::ExplainReply> refused = explain_all_reduce(asked, true, in_force);
  ASSERT_TRUE(refused) << refused.error().message;
  EXPECT_EQ(refused->codec(), "none");
  EXPECT_EQ(refused->codec_why(),
            "q8 is refused between GPUs of several nodes: node node-x does not allow codecs: "
            "gpu.codecs is off there, or its release of arcommd does not tell");
}

TEST(ExplainAllReduce, OfGpusOfSeveralNodesSaysWhatAnErrorClassComesTo) {
  const InForce in_force(Loaded{});
  v1::ExplainRequest asked = question(0, 2);
  asked.set_least_snr_db(30);
  const Result<v1::ExplainReply> coded = explain_all_reduce(asked, true, in_force);
  ASSERT_TRUE(coded) << coded.error().message;
  EXPECT_EQ(coded->codec(), "q6");
  EXPECT_THAT(coded->codec_why(), HasSubstr("q6: the fastest that pays and promises at least 30"));
  EXPECT_THAT(coded->text(), HasSubstr("partial results travel as q6"));
  asked.set_bytes(1 << 10);
  EXPECT_EQ(explain_all_reduce(asked, true, in_force)->codec(), "none");
}

TEST(ExplainAllReduce, BetweenHostsAnErrorClassGetsACodecWhereTheMeasuredLinkIsSlow) {
  InForce in_force(Loaded{});
  v1::ExplainRequest asked = question(0, 2);
  asked.set_least_snr_db(30);
  const auto explain = [&] { return explain_all_reduce(asked, false, in_force).value(); };
  EXPECT_EQ(explain().codec(), "none");
  EXPECT_THAT(explain().codec_why(), HasSubstr("was not measured"));
  const auto measure = [&](std::uint64_t bytes_per_second) {
    in_force.use(std::make_shared<const NetworkTuning>(NetworkTuning{
        .links = {{.address = "a:1", .latency_us = 30, .bytes_per_second = bytes_per_second}}}));
  };
  measure(117'000'000);
  EXPECT_EQ(explain().codec(), "q6");
  EXPECT_THAT(explain().text(), HasSubstr("partial results travel as q6"));
  measure(5'000'000'000);
  EXPECT_EQ(explain().codec(), "none");
  EXPECT_THAT(explain().codec_why(), HasSubstr("at the 5 GB/s that arctl tune --network measured"));
}

TEST(ExplainAllReduce, RefusesWhatCannotBeAndSaysWhatCan) {
  const InForce in_force(Loaded{});
  const auto fault = [&](const v1::ExplainRequest& request, bool on_gpus) {
    const Result<v1::ExplainReply> reply = explain_all_reduce(request, on_gpus, in_force);
    return reply ? std::string("none") : reply.error().message;
  };
  EXPECT_THAT(fault(question(-1), false), HasSubstr("cannot explain -1 ranks"));
  EXPECT_THAT(fault(question(1000), true), HasSubstr("1 to "));
  EXPECT_THAT(fault(question(2, 4), false), HasSubstr("a rank on each at least"));
  v1::ExplainRequest strange = question(2);
  strange.set_dtype(250);
  EXPECT_THAT(fault(strange, false), HasSubstr("dtype number 250"));
}

}  // namespace
}  // namespace arcomm
