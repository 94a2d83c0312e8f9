// Operations as Chrome and Perfetto draw them: client/arctl/view/view_chrome.cc.
#include <gmock/gmock.h>

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "client/arctl/view/views.h"

namespace arcomm::arctl {
namespace {

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

TEST(ChromeTrace, NamesTheCodecOnEverySliceOfAnOperation) {
  v1::TraceReply reply;
  *reply.add_records() = traced_between_nodes(7, 0);
  reply.mutable_records(0)->set_codec("q6");
  reply.mutable_records(0)->set_of_error_class(true);
  const std::vector<Json> slices = events_of(reply, "X");
  ASSERT_EQ(slices.size(), 7u) << "two of them between the nodes";
  for (const Json& slice : slices) {
    EXPECT_EQ(slice["args"]["codec"], "q6") << slice;
    EXPECT_EQ(slice["args"]["of_error_class"], true);
    EXPECT_EQ(slice["args"]["operation"], "sum float32 class:q6");
  }
  reply.mutable_records(0)->clear_codec();
  EXPECT_EQ(events_of(reply, "X")[0]["args"]["codec"], "none") << "of a daemon that says none";
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

}  // namespace
}  // namespace arcomm::arctl
