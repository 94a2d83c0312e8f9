#include <gmock/gmock.h>

#include "client/arctl/view/views.h"

namespace arcomm::arctl {
namespace {

using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::Not;

v1::TuneReply one_link() {
  v1::TuneReply last;
  v1::TuneLink& link = *last.add_links();
  link.set_address("10.0.0.2:7400");
  link.set_name("node2");
  link.set_round_trip_us(40);
  link.set_round_trip_p99_us(90);
  link.set_sent_with_copies(3'000'000'000);
  link.set_received_with_copies(2'500'000'000);
  return last;
}

void add_flag(v1::TuneReply& last, const char* gpu, double p50_us) {
  v1::TuneFlag& flag = *last.add_flags();
  flag.set_gpu(gpu);
  flag.set_p50_us(p50_us);
  flag.set_p99_us(2 * p50_us);
}

TEST(NetworkBench, ShowsEachPartWithUnitsInTheHeaders) {
  v1::TuneReply last = one_link();
  add_flag(last, "GPU-a", 1.5);
  const std::string text = network_bench_text(last, false);
  EXPECT_THAT(text, ContainsRegex("PART +WITH +P50 us +P99 us +SENT GB/s +RECEIVED GB/s"));
  EXPECT_THAT(text, ContainsRegex("message there and back +10.0.0.2:7400 node2 +40.00 +90.00"));
  EXPECT_THAT(text, ContainsRegex("bulk, the kernel copying +10.0.0.2:7400 node2 +3.00 +2.50"));
  EXPECT_THAT(text, Not(HasSubstr("without copies"))) << "the kernel cannot";
  EXPECT_THAT(text, ContainsRegex("flag to the CPU and back +GPU-a +1.50 +3.00"));
}

TEST(NetworkBench, SumsUpAFlagHereAMessageAndAFlagThereWithTheSlowestGpu) {
  v1::TuneReply last = one_link();
  add_flag(last, "GPU-a", 1.5);
  add_flag(last, "GPU-b", 2.5);
  const std::string text = network_bench_text(last, false);
  EXPECT_THAT(text, ContainsRegex("flag to flag, one way +10.0.0.2:7400 node2 +22.50"));
  EXPECT_THAT(text, HasSubstr("as fast as on GPU-b, the slowest here"));
  const Json json = network_bench_json(last);
  EXPECT_EQ(json.at("links")[0].at("flag_to_flag_us"), 22.5);
  EXPECT_EQ(json.at("slowest_gpu"), "GPU-b");
}

TEST(NetworkBench, LeavesOutFlagsAndSumWhereThereAreNoGpusAndSaysSo) {
  const v1::TuneReply last = one_link();
  const std::string text = network_bench_text(last, false);
  EXPECT_THAT(text, Not(HasSubstr("flag to flag")));
  EXPECT_THAT(text, HasSubstr("this daemon serves no GPU"));
  const Json json = network_bench_json(last);
  EXPECT_TRUE(json.at("links")[0].at("flag_to_flag_us").is_null());
  EXPECT_TRUE(json.at("flags").empty());
  EXPECT_EQ(json.at("links")[0].at("with_copies").at("sent_bytes_per_second"), 3'000'000'000);
  EXPECT_TRUE(json.at("links")[0].at("without_copies").is_null());
}

TEST(NetworkBench, SaysWhyAPeerOrAFlagCouldNotBeMeasured) {
  v1::TuneReply last = one_link();
  v1::TuneLink& dead = *last.add_links();
  dead.set_address("10.0.0.3:7400");
  dead.set_why("it is not\x1b alive");
  v1::TuneFlag& flag = *last.add_flags();
  flag.set_gpu("GPU-a");
  flag.set_why("2 communicators are on the GPUs");
  const std::string text = network_bench_text(last, false);
  EXPECT_THAT(text, ContainsRegex("10.0.0.3:7400 +- +- +it is not. alive"));
  EXPECT_THAT(text, ContainsRegex("GPU-a +- +- +2 communicators are on the GPUs"));
  EXPECT_THAT(text, HasSubstr("no flag was measured"));
  const Json json = network_bench_json(last);
  EXPECT_TRUE(json.at("links")[1].at("round_trip_p50_us").is_null());
  EXPECT_TRUE(json.at("flags")[0].at("p50_us").is_null());
}

}  // namespace
}  // namespace arcomm::arctl
