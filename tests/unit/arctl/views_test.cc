#include "client/arctl/view/views.h"

#include <gmock/gmock.h>

#include <map>
#include <vector>

#include "client/arctl/command_line/exit_code.h"

namespace arcomm::arctl {
namespace {

using ::testing::HasSubstr;
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
  ASSERT_NE(lagging_rank(communicator), nullptr);
  EXPECT_EQ(lagging_rank(communicator)->rank(), 1);
}

TEST(Views, DiagnosisIsSilentWhileRanksOnlyRunApart) {
  EXPECT_EQ(diagnosis_of(communicator_of({8, 7, 8})), "");
  EXPECT_EQ(diagnosis_of(communicator_of({8, 8})), "");
  EXPECT_EQ(lagging_rank(communicator_of({8, 8})), nullptr);
  EXPECT_EQ(lagging_rank(communicator_of({})), nullptr);
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
                        "00ff +0 +7 +3 +net_direct +2.0 +2.5 +4.0 +5.5 +4096 +8192\n"));
  EXPECT_EQ(text.find("8192"), text.rfind("8192"));
  const Json record = trace_json(reply)["records"][1];
  EXPECT_EQ(record["network"]["nodes"], 3);
  EXPECT_EQ(record["network"]["arrived_ns"], 15'500);
  EXPECT_EQ(record["network"]["credited_ns"], 0);
  reply.mutable_records(0)->clear_network();
  EXPECT_TRUE(trace_json(reply)["records"][0]["network"].is_null());
}

v1::TraceRecord traced(std::uint64_t seq, std::int32_t rank, std::uint64_t submitted_ns,
                       std::uint64_t done_ns) {
  v1::TraceRecord record;
  record.set_communicator("00ff");
  record.set_epoch(3);
  record.set_seq(seq);
  record.set_rank(rank);
  record.set_pid(100 + rank);
  record.set_op("sum");
  record.set_dtype("float32");
  record.set_collective("all_reduce");
  record.set_send_count(1024);
  record.set_recv_count(1024);
  record.set_algorithm("tiled");
  record.set_culprit_rank(-1);
  record.set_submitted_ns(submitted_ns);
  record.set_admitted_ns(submitted_ns + 2'000);
  record.set_matched_ns(submitted_ns + 2'500);
  record.set_launched_ns(submitted_ns + 3'000);
  record.set_done_ns(done_ns);
  return record;
}

std::vector<Json> events_of(const v1::TraceReply& reply, std::string_view kind) {
  const Json read = Json::parse(json_line(trace_chrome_json(reply)));
  std::vector<Json> found;
  for (const Json& event : read["traceEvents"]) {
    if (event["ph"] == kind) found.push_back(event);
  }
  return found;
}

TEST(ChromeTrace, HasASliceForEachStepInMicroseconds) {
  v1::TraceReply reply;
  *reply.add_records() = traced(7, 0, 1'000'000, 1'009'000);
  const std::vector<Json> slices = events_of(reply, "X");
  ASSERT_EQ(slices.size(), 4u);
  const std::vector<std::string> names = {"ring", "match", "start", "run"};
  const std::vector<double> begins = {1000, 1002, 1002.5, 1003}, lasts = {2, 0.5, 0.5, 6};
  for (std::size_t i = 0; i < slices.size(); ++i) {
    EXPECT_EQ(slices[i]["name"], names[i]);
    EXPECT_EQ(slices[i]["ts"].get<double>(), begins[i]);
    EXPECT_EQ(slices[i]["dur"].get<double>(), lasts[i]);
    EXPECT_EQ(slices[i]["args"]["seq"], 7);
    EXPECT_EQ(slices[i]["args"]["collective"], "all_reduce");
    EXPECT_EQ(slices[i]["args"]["send_count"], 1024);
    EXPECT_EQ(slices[i]["args"]["recv_count"], 1024);
    EXPECT_EQ(slices[i]["args"]["bytes"], 4096);
    EXPECT_EQ(slices[i]["args"]["algorithm"], "tiled");
    EXPECT_EQ(slices[i]["args"]["code"], "Ok");
    EXPECT_EQ(slices[i]["args"]["culprit"], -1);
  }
}

TEST(ChromeTrace, NamesATrackForEachCommunicatorAndRank) {
  v1::TraceReply reply;
  *reply.add_records() = traced(1, 0, 1000, 9000);
  *reply.add_records() = traced(1, 1, 1500, 9000);
  *reply.add_records() = traced(2, 0, 10'000, 19'000);
  v1::TraceRecord& other = *reply.add_records();
  other = traced(0, 0, 2000, 9000);
  other.set_communicator("abcd");
  std::map<std::pair<int, int>, std::string> names;
  for (const Json& event : events_of(reply, "M"))
    names[{event["pid"], event["tid"]}] = event["args"]["name"];
  EXPECT_EQ(names,
            (std::map<std::pair<int, int>, std::string>{{{1, 0}, "communicator 00ff, epoch 3"},
                                                        {{1, 1}, "rank 0 (pid 100)"},
                                                        {{1, 2}, "rank 1 (pid 101)"},
                                                        {{2, 0}, "communicator abcd, epoch 3"},
                                                        {{2, 1}, "rank 0 (pid 100)"}}));
  double before = 0;
  for (const Json& slice : events_of(reply, "X")) {
    EXPECT_TRUE(names.contains({slice["pid"], slice["tid"]}));
    EXPECT_GE(slice["ts"].get<double>(), before);
    before = slice["ts"].get<double>();
  }
}

// Slices of one thread must be nested for a viewer.
TEST(ChromeTrace, GivesOperationsThatOverlapTracksOfTheirOwn) {
  v1::TraceReply reply;
  *reply.add_records() = traced(1, 0, 1000, 9000);
  *reply.add_records() = traced(2, 0, 2000, 12'000);
  *reply.add_records() = traced(3, 0, 9000, 15'000);
  std::map<int, int> track_of;  // by seq
  for (const Json& slice : events_of(reply, "X")) track_of[slice["args"]["seq"]] = slice["tid"];
  EXPECT_EQ(track_of, (std::map<int, int>{{1, 1}, {2, 2}, {3, 1}}));
}

v1::TraceRecord traced_between_nodes(std::uint64_t seq, std::int32_t rank) {
  v1::TraceRecord record = traced(seq, rank, 1'000'000, 1'012'000);
  record.set_agreed_ns(1'002'750);
  v1::TraceNetwork& network = *record.mutable_network();
  network.set_nodes(3);
  network.set_posted_ns(1'003'500);
  network.set_sent_ns(1'006'000);
  network.set_arrived_ns(1'008'750);
  network.set_credited_ns(1'009'000);
  network.set_sent_bytes(8192);
  network.set_received_bytes(4096);
  return record;
}

TEST(ChromeTrace, ShowsWhenNodesAgreedAndWhatWentBetweenThemOnceForEachOperation) {
  v1::TraceReply reply;
  for (std::int32_t rank = 0; rank < 2; ++rank)
    *reply.add_records() = traced_between_nodes(7, rank);
  std::map<std::pair<int, std::string>, std::pair<double, double>> slices;  // by thread and name
  std::map<std::string, Json> arguments;
  for (const Json& slice : events_of(reply, "X")) {
    const bool is_new =
        slices
            .emplace(std::pair(slice["tid"].get<int>(), slice["name"].get<std::string>()),
                     std::pair(slice["ts"].get<double>(), slice["dur"].get<double>()))
            .second;
    EXPECT_TRUE(is_new) << slice;
    arguments[slice["name"]] = slice["args"];
  }
  std::map<std::pair<int, std::string>, std::pair<double, double>> expected{
      {{3, "send"}, {1003.5, 2.5}}, {{4, "receive"}, {1002.75, 6}}};
  for (const int tid : {1, 2}) {
    expected[{tid, "ring"}] = {1000, 2};
    expected[{tid, "match"}] = {1002, 0.5};
    expected[{tid, "agree"}] = {1002.5, 0.25};
    expected[{tid, "start"}] = {1002.75, 0.25};
    expected[{tid, "run"}] = {1003, 9};
  }
  EXPECT_EQ(slices, expected);
  EXPECT_EQ(arguments["send"]["seq"], 7);
  EXPECT_EQ(arguments["send"]["nodes"], 3);
  EXPECT_EQ(arguments["send"]["sent_bytes"], 8192);
  EXPECT_EQ(arguments["receive"]["received_bytes"], 4096);
  EXPECT_EQ(arguments["receive"]["credited_us"], 1009.0);
  std::map<int, std::string> names;
  for (const Json& event : events_of(reply, "M")) names[event["tid"]] = event["args"]["name"];
  EXPECT_EQ(names[3], "to other nodes");
  EXPECT_EQ(names[4], "from other nodes");
}

TEST(ChromeTrace, LeavesOpenWhatOtherNodesHaveNotSentAndGivesWhatWentWithTheOfferNoTime) {
  v1::TraceReply reply;
  v1::TraceRecord& waiting = *reply.add_records();
  waiting = traced_between_nodes(1, 0);
  waiting.set_done_ns(0);
  waiting.mutable_network()->set_arrived_ns(0);
  std::vector<std::string> open;
  for (const Json& slice : events_of(reply, "B")) open.push_back(slice["name"]);
  EXPECT_EQ(open, (std::vector<std::string>{"receive", "run"}));

  reply.Clear();
  v1::TraceRecord& with_offer = *reply.add_records();
  with_offer = traced_between_nodes(2, 0);
  with_offer.mutable_network()->set_sent_ns(0);
  with_offer.mutable_network()->set_credited_ns(0);
  for (const Json& slice : events_of(reply, "X")) {
    if (slice["name"] == "send") {
      EXPECT_EQ(slice["dur"].get<double>(), 0);
    } else if (slice["name"] == "receive") {
      EXPECT_TRUE(slice["args"]["credited_us"].is_null());
    }
  }
}

// They overlap as their ranks' do.
TEST(ChromeTrace, GivesOperationsThatOverlapBetweenNodesTracksOfTheirOwn) {
  v1::TraceReply reply;
  for (std::uint64_t seq = 1; seq <= 2; ++seq) *reply.add_records() = traced_between_nodes(seq, 0);
  std::map<std::string, std::vector<int>> threads;
  for (const Json& slice : events_of(reply, "X"))
    threads[slice["name"]].push_back(slice["tid"].get<int>());
  EXPECT_EQ(threads["send"], (std::vector<int>{3, 4}));
  EXPECT_EQ(threads["receive"], (std::vector<int>{5, 6}));
}

TEST(ChromeTrace, ShowsWhereAnOperationFailedAndWhatHasNotEnded) {
  v1::TraceReply reply;
  v1::TraceRecord& failed = *reply.add_records();
  failed = traced(1, 0, 1000, 9000);
  failed.set_matched_ns(0);
  failed.set_launched_ns(0);
  failed.set_code(4);
  failed.set_culprit_rank(2);
  const std::vector<Json> slices = events_of(reply, "X");
  ASSERT_EQ(slices.size(), 2u);
  EXPECT_EQ(slices[1]["name"], "match");
  EXPECT_EQ(slices[1]["dur"].get<double>(), 6);
  EXPECT_EQ(slices[1]["args"]["code"], "DeadlineExceeded");
  EXPECT_EQ(slices[1]["args"]["culprit"], 2);

  reply.Clear();
  v1::TraceRecord& open = *reply.add_records();
  open = traced(2, 0, 1000, 0);
  open.set_launched_ns(0);
  const std::vector<Json> begun = events_of(reply, "B");
  ASSERT_EQ(begun.size(), 1u);
  EXPECT_EQ(begun[0]["name"], "start");
  EXPECT_EQ(begun[0]["args"]["code"], "in flight");
  EXPECT_FALSE(begun[0].contains("dur"));
  EXPECT_TRUE(trace_chrome_json({})["traceEvents"].empty());
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
  EXPECT_EQ(lagging_rank(one), nullptr);
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

TEST(ExitCodes, SayWhatKindOfFailureItWas) {
  EXPECT_EQ(exit_code_for({ErrorCode::Unavailable, Reason::NotRunning, "", -1}),
            ExitCode::NotRunning);
  EXPECT_EQ(exit_code_for({ErrorCode::Aborted, Reason::DaemonLost, "", -1}), ExitCode::NotRunning);
  EXPECT_EQ(exit_code_for({ErrorCode::PermissionDenied, Reason::Permission, "", -1}),
            ExitCode::Permission);
  EXPECT_EQ(exit_code_for({ErrorCode::NotFound, Reason::None, "", -1}), ExitCode::NotFound);
  EXPECT_EQ(exit_code_for({ErrorCode::DeadlineExceeded, Reason::Timeout, "", -1}),
            ExitCode::Timeout);
  EXPECT_EQ(exit_code_for({ErrorCode::InvalidArgument, Reason::BadConfig, "", -1}),
            ExitCode::Failure);
}

}  // namespace
}  // namespace arcomm::arctl
