#include "client/arctl/view/views.h"

#include <gmock/gmock.h>

#include <vector>

namespace arcomm::arctl {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

v1::CommunicatorStatus communicator_of(std::initializer_list<std::uint64_t> calls) {
  v1::CommunicatorStatus communicator;
  communicator.set_id("00ff");
  communicator.set_state("ready");
  communicator.set_ranks(static_cast<int>(calls.size()));
  for (const std::uint64_t seq : calls) {
    v1::RankStatus& member = *communicator.add_members();
    member.set_rank(communicator.members_size() - 1);
    member.set_pid(1000 + member.rank());
    member.set_last_seq(seq);
  }
  return communicator;
}

TEST(Views, StatusTellsAReadyDaemonFromADegradedOne) {
  v1::StatusReply reply;
  reply.set_state("ready");
  EXPECT_TRUE(is_ready(reply));
  reply.set_state("degraded: no tuning table");
  EXPECT_FALSE(is_ready(reply));
  EXPECT_THAT(status_text(reply, false, false), HasSubstr("degraded: no tuning table"));
}

TEST(Views, StatusShowsSettingsOnlyWhenAsked) {
  v1::StatusReply reply;
  v1::Setting& setting = *reply.add_settings();
  setting.set_name("ring.slots");
  setting.set_value("256");
  setting.set_source("file");
  EXPECT_THAT(status_text(reply, false, false), Not(HasSubstr("ring.slots")));
  EXPECT_THAT(status_text(reply, true, false), HasSubstr("ring.slots  256    file"));
}

TEST(Views, StatusJsonCarriesEveryWorker) {
  v1::StatusReply reply;
  reply.add_workers()->set_device("host:0");
  reply.add_workers()->set_device("host:1");
  const std::string text = json_line(status_json(reply));
  EXPECT_THAT(text, HasSubstr(R"("device":"host:0")"));
  EXPECT_THAT(text, HasSubstr(R"("device":"host:1")"));
}

TEST(Views, StatusShowsWhatIsUsedOfEachLimitAndByWhom) {
  v1::StatusReply reply;
  v1::LimitStatus& bytes = *reply.add_limits();
  bytes.set_name("host_bytes");
  bytes.set_in_bytes(true);
  bytes.set_used(48 << 20);
  bytes.set_of_node(64 << 20);
  bytes.set_users(2);
  bytes.set_most(40 << 20);
  bytes.set_most_uid(1001);
  reply.add_limits()->set_name("sessions");
  const std::string text = status_text(reply, false, false);
  EXPECT_THAT(text, ::testing::ContainsRegex(
                        "host_bytes +48[^ ]* MiB +64[^ ]* MiB +- +2 +40[^ ]* MiB +1001"));
  EXPECT_THAT(text, ::testing::ContainsRegex("sessions +0 +- +- +0 +0 +-"));
  EXPECT_THAT(json_line(status_json(reply)),
              HasSubstr(R"("limits":[{"name":"host_bytes","used":50331648,"of_node":67108864,)"
                        R"("of_uid":null,"users":2,"most":41943040,"most_uid":1001})"));
}

TEST(Views, DiagnosisNamesTheRankThatOthersWaitFor) {
  v1::CommunicatorStatus communicator = communicator_of({8, 7, 8});
  communicator.mutable_members(0)->set_waiting("seq 7 since 120 ms");
  EXPECT_THAT(diagnosis_of(communicator), HasSubstr("rank 1 (pid 1001)"));
  EXPECT_THAT(diagnosis_of(communicator), HasSubstr("7"));
  EXPECT_THAT(lagging_ranks(communicator), ElementsAre(&communicator.members(1)));
}

TEST(Views, DiagnosisNamesAllThatAreAsFarBehind) {
  v1::CommunicatorStatus communicator = communicator_of({8, 7, 9, 7});
  communicator.mutable_members(2)->set_waiting("seq 8 since 120 ms");
  EXPECT_EQ(diagnosis_of(communicator),
            "rank 1 (pid 1001), rank 3 (pid 1003) are behind: they have called 7 operations and "
            "others wait for them");
  EXPECT_THAT(lagging_ranks(communicator),
              ElementsAre(&communicator.members(1), &communicator.members(3)));
}

TEST(Views, DiagnosisIsSilentWhileRanksOnlyRunApart) {
  EXPECT_EQ(diagnosis_of(communicator_of({8, 7, 8})), "");
  EXPECT_EQ(diagnosis_of(communicator_of({8, 8})), "");
  EXPECT_THAT(lagging_ranks(communicator_of({8, 8})), IsEmpty());
  EXPECT_THAT(lagging_ranks(communicator_of({})), IsEmpty());
}

TEST(Views, DiagnosisPrefersTheDaemonsOwn) {
  v1::CommunicatorStatus communicator = communicator_of({1, 2});
  communicator.set_diagnosis("rank 0 (pid 9) has not called seq 1");
  EXPECT_EQ(diagnosis_of(communicator), "rank 0 (pid 9) has not called seq 1");
}

TEST(Views, CommunicatorsAreFoundByTheStartOfTheirId) {
  v1::CommunicatorsReply reply;
  *reply.add_communicators() = communicator_of({1});
  reply.add_communicators()->set_id("ab");
  v1::CommunicatorsReply none = reply;
  EXPECT_TRUE(keep_communicators(reply, "00"));
  EXPECT_EQ(reply.communicators_size(), 1);
  EXPECT_FALSE(keep_communicators(none, "ff"));
}

TEST(Views, TraceShowsTheTimeOfEachStepAndBlanksForThoseNotReached) {
  v1::TraceReply reply;
  v1::TraceRecord& done = *reply.add_records();
  done.set_op("sum");
  done.set_dtype("float32");
  done.set_submitted_ns(1'000);
  done.set_admitted_ns(3'000);
  done.set_matched_ns(13'000);
  done.set_launched_ns(13'500);
  done.set_done_ns(17'000);
  reply.add_records()->set_submitted_ns(1'000);
  v1::TraceRecord& failed = *reply.add_records();
  failed.set_done_ns(5);
  failed.set_code(4);
  failed.set_reason(5);
  failed.set_culprit_rank(2);
  const std::string text = trace_text(reply, false);
  EXPECT_THAT(text, ::testing::ContainsRegex("2.0 +10.0 +0.5 +3.5 +16.0 +ok"));
  EXPECT_THAT(text, HasSubstr("in flight"));
  EXPECT_THAT(text, HasSubstr("DeadlineExceeded (Timeout) by rank 2"));
}

TEST(Views, TraceShowsStepsBetweenNodesOnceForEachOperation) {
  v1::TraceReply reply;
  for (int rank = 0; rank < 2; ++rank) {
    v1::TraceRecord& record = *reply.add_records();
    record.set_communicator("00ff");
    record.set_rank(rank);
    record.set_seq(7);
    record.set_op("sum");
    record.set_dtype("bfloat16");
    record.set_codec("q4_rotated");
    record.set_algorithm("net_direct");
    record.set_matched_ns(10'000);
    record.set_agreed_ns(12'000);
    v1::TraceNetwork& network = *record.mutable_network();
    network.set_nodes(3);
    network.set_posted_ns(12'500);
    network.set_sent_ns(14'000);
    network.set_arrived_ns(15'500);
    network.set_sent_bytes(4096);
    network.set_received_bytes(8192);
  }
  const std::string text = trace_text(reply, false);
  EXPECT_THAT(text, ::testing::ContainsRegex(
                        "00ff +0 +7 +sum bfloat16 q4_rotated +3 +net_direct +2.0 +2.5 +4.0 +5.5 "
                        "+4096 +8192\n"));
  EXPECT_EQ(text.find("8192"), text.rfind("8192"));
  const Json record = trace_json(reply)["records"][1];
  EXPECT_EQ(record["network"]["nodes"], 3);
  EXPECT_EQ(record["network"]["arrived_ns"], 15'500);
  EXPECT_EQ(record["network"]["credited_ns"], 0);
  reply.mutable_records(0)->clear_network();
  EXPECT_TRUE(trace_json(reply)["records"][0]["network"].is_null());
}

// Fewer bytes travel than count and type say: the codec is why, wherever either is shown.
TEST(Views, TraceNamesTheCodecOrWhatAnErrorClassCameTo) {
  v1::TraceReply reply;
  v1::TraceRecord& named = *reply.add_records();
  named.set_op("sum");
  named.set_dtype("bfloat16");
  named.set_codec("q6");
  named.set_done_ns(5);
  v1::TraceRecord& of_class = *reply.add_records();
  of_class = named;
  of_class.set_codec("fp8");
  of_class.set_of_error_class(true);
  of_class.mutable_network()->set_sent_bytes(34);
  *reply.add_records() = named;
  reply.mutable_records(2)->set_codec("none");
  const std::string text = trace_text(reply, false);
  const std::size_t between = text.find("Between nodes");
  ASSERT_NE(between, std::string::npos);
  EXPECT_THAT(text.substr(0, between), HasSubstr("sum bfloat16 q6 "));
  EXPECT_THAT(text.substr(0, between), HasSubstr("sum bfloat16 class:fp8 "));
  EXPECT_THAT(text.substr(between), HasSubstr("sum bfloat16 class:fp8 "));
  EXPECT_EQ(text.find("none"), std::string::npos) << text;
  const Json records = trace_json(reply)["records"];
  EXPECT_EQ(records[0]["codec"], "q6");
  EXPECT_EQ(records[0]["of_error_class"], false);
  EXPECT_EQ(records[1]["codec"], "fp8");
  EXPECT_EQ(records[1]["of_error_class"], true);
  EXPECT_EQ(records[2]["codec"], "none");
}

constexpr char kExposition[] =
    "# HELP arcomm_sessions Attached clients\n"
    "# TYPE arcomm_sessions gauge\n"
    "arcomm_sessions 3\n"
    "# TYPE arcomm_time_seconds histogram\n"
    "arcomm_time_seconds_bucket{le=\"+Inf\",what=\"a\\\"b\"} 7\n"
    "arcomm_time_seconds_sum 0.25\n";

TEST(Views, MetricsBecomeJsonWithTypesAndLabels) {
  EXPECT_EQ(
      json_line(metrics_json(kExposition, "")),
      R"({"metrics":[{"name":"arcomm_sessions","type":"gauge","labels":{},"value":3},)"
      R"({"name":"arcomm_time_seconds_bucket","type":"histogram","labels":{"le":"+Inf","what":"a\"b"},"value":7},)"
      R"({"name":"arcomm_time_seconds_sum","type":"histogram","labels":{},"value":0.25}]})"
      "\n");
}

TEST(Views, MetricsAreKeptByTheStartOfTheirName) {
  EXPECT_EQ(metrics_json(kExposition, "arcomm_time")["metrics"].size(), 2u);
  EXPECT_EQ(
      metrics_text(kExposition, "arcomm_sess"),
      "# HELP arcomm_sessions Attached clients\n# TYPE arcomm_sessions gauge\narcomm_sessions 3\n");
}

TEST(Views, MetricsSurviveTextThatIsCutOff) {
  for (std::size_t length = 0; length < sizeof(kExposition); ++length) {
    const std::string text = json_line(metrics_json(std::string_view(kExposition, length), ""));
    EXPECT_TRUE(text.starts_with("{\"metrics\":[") && text.ends_with("]}\n")) << length;
  }
}

TEST(Views, ACommunicatorSaysWhichWayItsOperationsTakeAndWhyNotAFasterOne) {
  v1::CommunicatorsReply reply;
  v1::CommunicatorStatus& one = *reply.add_communicators();
  one.set_id("0123");
  one.set_state("ready");
  EXPECT_THAT(communicators_text(reply, false), ::testing::Not(HasSubstr("above"))) << "a host's";
  const auto add = [&one](const char* types, const char* path, std::uint64_t most_bytes) {
    v1::LaunchStretch& stretch = *one.add_launches();
    stretch.set_types(types);
    stretch.set_path(path);
    stretch.set_most_bytes(most_bytes);
  };
  add("float16", "in-stream", 16 << 20);
  add("float16", "launched", ~std::uint64_t{0});
  one.mutable_launches(1)->set_algorithm("stream");
  add("other types", "resident", 128 << 10);
  add("other types", "launched", ~std::uint64_t{0});
  EXPECT_THAT(communicators_text(reply, false),
              HasSubstr("  float16: in-stream to 16 MiB, launched (stream) above; "
                        "other types: resident to 128 KiB, launched above\n"));
  EXPECT_THAT(communicators_text(reply, false), Not(HasSubstr("SMs of each")));
  one.set_most_sms(16);
  EXPECT_THAT(communicators_text(reply, false), HasSubstr("  at most 16 SMs of each GPU\n"));
  EXPECT_THAT(communicators_json(reply).dump(), HasSubstr(R"("most_sms":16)"));
  one.set_why_not_in_stream("rank 1's process does not see GPU-0");
  EXPECT_THAT(communicators_text(reply, false),
              HasSubstr("why not more in-stream: rank 1's process does not see GPU-0\n"));
  const std::string text = communicators_json(reply).dump();
  EXPECT_THAT(text, HasSubstr(R"({"types":"other types","path":"resident","most_bytes":131072})"));
  EXPECT_THAT(text, HasSubstr(R"("algorithm":"stream")"));
  EXPECT_THAT(text, HasSubstr(R"("why_not_in_stream":"rank 1's process does not see GPU-0")"));
}

TEST(Views, OfGpusOnSeveralNodesTheOneWayIsToldWithWhyNothingIsInStream) {
  v1::CommunicatorsReply reply;
  v1::CommunicatorStatus& one = *reply.add_communicators();
  one = communicator_of({7});
  v1::LaunchStretch& all = *one.add_launches();
  all.set_types("all types");
  all.set_path("launched");
  all.set_algorithm("exchange");
  all.set_most_bytes(~std::uint64_t{0});
  one.set_why_not_in_stream("its ranks are on several nodes");
  EXPECT_THAT(communicators_text(reply, false),
              HasSubstr("  all types: launched (exchange)\n"
                        "  why not more in-stream: its ranks are on several nodes\n"));
  EXPECT_EQ(communicators_json(reply)["communicators"][0]["why_no_codecs"], "");
  one.set_why_no_codecs("node node-b does not allow codecs");
  EXPECT_THAT(communicators_text(reply, false),
              HasSubstr("  why no codecs: node node-b does not allow codecs\n"));
  EXPECT_EQ(communicators_json(reply)["communicators"][0]["why_no_codecs"],
            "node node-b does not allow codecs");
}

TEST(Views, ARankOfAnotherNodeIsShownWithItAndNeverBehind) {
  v1::CommunicatorsReply reply;
  v1::CommunicatorStatus& one = *reply.add_communicators();
  one = communicator_of({7});
  EXPECT_THAT(communicators_text(reply, false), ::testing::Not(HasSubstr("NODE")));
  one.mutable_members(0)->set_session(5);
  one.mutable_members(0)->set_node("node-a");
  v1::RankStatus& other = *one.add_members();
  other.set_rank(1);
  other.set_pid(812);
  other.set_node("node-b");
  other.set_waiting("seq 7");
  EXPECT_THAT(lagging_ranks(one), IsEmpty());
  const std::string text = communicators_text(reply, false);
  EXPECT_THAT(text, HasSubstr("NODE"));
  EXPECT_THAT(text, HasSubstr("node-b"));
  EXPECT_THAT(communicators_json(reply).dump(), HasSubstr(R"("node":"node-b")"));
}

TEST(Views, OtherDaemonsAreShownWithTheirStateAndWhy) {
  v1::NetReply reply;
  EXPECT_THAT(net_text(reply, false), HasSubstr("name them in net.peers"));
  reply.set_address("10.0.0.1:7400");
  reply.set_name("node-a");
  reply.set_instance("00000000000000ab");
  v1::NetPeer& peer = *reply.add_peers();
  peer.set_address("10.0.0.2:7400");
  peer.set_state("alive");
  peer.set_configured(true);
  peer.set_round_trip_ns(84'000);
  v1::NetPeer& other = *reply.add_peers();
  other.set_address("10.0.0.3:7400");
  other.set_state("refused");
  other.set_why("node-c has another token");
  v1::NetLink& link = *reply.add_links();
  link.set_name("node-b");
  link.set_worker("host:0");
  link.set_state("up");
  link.set_streams(8);
  link.set_sent_bytes(3 << 20);
  link.set_delivered_bytes_per_second(2560ull << 20);
  link.set_waited_for_peer_ns(1'500'000);
  v1::NetInterface& interface = *reply.add_interfaces();
  interface.set_name("eth1");
  interface.set_why("no carrier");
  v1::NetDropped& late = *reply.add_dropped();
  late.set_reason("late");
  late.set_frames(3);
  reply.add_dropped()->set_reason("damaged");
  const std::string text = net_text(reply, false);
  for (const char* part :
       {"node-a", "10.0.0.2:7400", "84 us", "node-c has another token", "host:0", "3 MiB", "RATE",
        "2.5 GiB/s", "1.50 ms", "no carrier", "that were dropped: 3 late\n"})
    EXPECT_THAT(text, HasSubstr(part));
  const Json json = net_json(reply);
  EXPECT_EQ(json["peers"][0]["state"], "alive");
  EXPECT_EQ(json["peers"][0]["round_trip_s"], 84e-6);
  EXPECT_EQ(json["links"][0]["sent_bytes"], 3 << 20);
  EXPECT_EQ(json["links"][0]["delivered_bytes_per_second"], 2560ull << 20);
  EXPECT_EQ(json["links"][0]["waited_for_peer_s"], 1.5e-3);
  EXPECT_EQ(json["dropped"]["late"], 3);
  EXPECT_EQ(json["dropped"]["damaged"], 0);
}

}  // namespace
}  // namespace arcomm::arctl
