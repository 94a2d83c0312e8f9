#include "client/arctl/views.h"

#include <gmock/gmock.h>

#include "client/arctl/exit_code.h"

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
  Json json;
  status_json(json, reply);
  const std::string text = json.take();
  EXPECT_THAT(text, HasSubstr(R"("device":"host:0")"));
  EXPECT_THAT(text, HasSubstr(R"("device":"host:1")"));
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

constexpr char kExposition[] =
    "# HELP arcomm_sessions Attached clients\n"
    "# TYPE arcomm_sessions gauge\n"
    "arcomm_sessions 3\n"
    "# TYPE arcomm_time_seconds histogram\n"
    "arcomm_time_seconds_bucket{le=\"+Inf\",what=\"a\\\"b\"} 7\n"
    "arcomm_time_seconds_sum 0.25\n";

TEST(Views, MetricsBecomeJsonWithTypesAndLabels) {
  Json json;
  EXPECT_EQ(metrics_json(json, kExposition, ""), 3u);
  EXPECT_EQ(
      json.take(),
      R"({"metrics":[{"name":"arcomm_sessions","type":"gauge","labels":{},"value":3},)"
      R"({"name":"arcomm_time_seconds_bucket","type":"histogram","labels":{"le":"+Inf","what":"a\"b"},"value":7},)"
      R"({"name":"arcomm_time_seconds_sum","type":"histogram","labels":{},"value":0.25}]})");
}

TEST(Views, MetricsAreKeptByTheStartOfTheirName) {
  Json json;
  EXPECT_EQ(metrics_json(json, kExposition, "arcomm_time"), 2u);
  EXPECT_EQ(
      metrics_text(kExposition, "arcomm_sess"),
      "# HELP arcomm_sessions Attached clients\n# TYPE arcomm_sessions gauge\narcomm_sessions 3\n");
}

TEST(Views, MetricsSurviveTextThatIsCutOff) {
  for (std::size_t length = 0; length < sizeof(kExposition); ++length) {
    Json json;
    metrics_json(json, std::string_view(kExposition, length), "");
    const std::string text = json.take();
    EXPECT_TRUE(text.starts_with("{\"metrics\":[") && text.ends_with("]}")) << length;
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
  add("other types", "resident", 128 << 10);
  add("other types", "launched", ~std::uint64_t{0});
  EXPECT_THAT(communicators_text(reply, false),
              HasSubstr("  float16: in-stream to 16 MiB, launched above; "
                        "other types: resident to 128 KiB, launched above\n"));
  one.set_why_not_in_stream("rank 1's process does not see GPU-0");
  EXPECT_THAT(communicators_text(reply, false),
              HasSubstr("why not more in-stream: rank 1's process does not see GPU-0\n"));
  Json json;
  communicators_json(json, reply);
  const std::string text = json.take();
  EXPECT_THAT(text, HasSubstr(R"({"types":"other types","path":"resident","most_bytes":131072})"));
  EXPECT_THAT(text, HasSubstr(R"("why_not_in_stream":"rank 1's process does not see GPU-0")"));
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
