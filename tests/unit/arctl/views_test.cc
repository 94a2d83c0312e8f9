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
  const std::string text = json_line(status_json(reply));
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
