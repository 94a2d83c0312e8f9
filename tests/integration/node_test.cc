#include "tests/integration/node_test.h"

#include <csignal>
#include <cstdlib>
#include <sstream>
#include <stdexcept>
#include <utility>

namespace arcomm::support {

void NodeTest::start(DaemonProcess::Options options) {
  // With 0 the worker runs what else runs within the ranks' calls, and the same must hold.
  if (const char* bytes = std::getenv("ARCOMM_TEST_IN_CALL_BYTES"))
    options.settings.emplace("host.in_call_bytes", bytes);
  node_ = DaemonProcess::start(std::move(options));
  // A test without its daemon cannot go on; GoogleTest reports the exception as this test's
  // failure.
  if (!node_) throw std::runtime_error("no daemon");
}

void NodeTest::TearDown() {
  if (!node_) return;
  if (expect_good_as_new_ && node_->running()) {
    node_->thaw();
    expect_clean_all_reduce(*node_);
    for (const char* gauge : {"arcomm_sessions", "arcomm_communicators", "arcomm_registered_bytes",
                              "arcomm_buffers", "arcomm_plans", "arcomm_operations_in_flight"}) {
      expect_metric_settles(gauge, 0);
    }
    node_->stop();
  } else if (const std::optional<Exit> ended = node_->wait_exit(milliseconds(0))) {
    // A case that is about clients alone must not pass by a daemon that crashed under them.
    EXPECT_TRUE(ended->signal == 0 || ended->signal == SIGKILL)
        << "the daemon crashed by signal " << ended->signal;
  }
  node_.reset();
}

void NodeTest::expect_metric_at_least(std::string_view name,
                                      std::initializer_list<std::string_view> labels,
                                      double value) {
  double last = 0;
  const bool reached =
      eventually(kPrompt, [&] { return (last = scrape().value(name, labels)) >= value; });
  EXPECT_TRUE(reached) << name << " is " << last << ", expected at least " << value;
}

void NodeTest::expect_metric_settles(std::string_view name, double value, milliseconds deadline) {
  double last = 0;
  const bool reached = eventually(deadline, [&] { return (last = scrape().value(name)) == value; });
  EXPECT_TRUE(reached) << name << " is " << last << " and not " << value;
}

void NodeTest::expect_log(std::string_view text) {
  EXPECT_TRUE(node_->wait_for_log(text, kPrompt)) << "the log does not say \"" << text << "\"";
}

void NodeTest::expect_refusal_told(std::string_view call, pid_t pid, std::string_view code) {
  expect_metric_at_least("arcomm_control_calls_total", {code}, 1);
  expect_log(std::string(call) + " of pid " + std::to_string(pid) + ": " + std::string(code));
}

void NodeTest::wait_in_flight(double operations) {
  expect_metric_at_least("arcomm_operations_in_flight", {}, operations);
}

std::size_t NodeTest::traced(std::string_view code, pid_t pid) {
  const nlohmann::json trace = arctl_json(*node_, {"trace", "--last", "0"});
  std::size_t count = 0;
  for (const nlohmann::json& record : trace.value("records", nlohmann::json::array())) {
    count += record.value("finished", false) && record.value("code", "") == code &&
                     (pid == 0 || record.value("pid", 0) == pid)
                 ? 1
                 : 0;
  }
  return count;
}

void NodeTest::expect_trace(std::string_view reason, int culprit) {
  const nlohmann::json trace = arctl_json(*node_, {"trace", "--last", "0"});
  ASSERT_TRUE(trace.is_object() && trace.contains("records"));
  for (const nlohmann::json& record : trace["records"]) {
    if (record.value("reason", "") == reason && record.value("finished", false) &&
        (culprit == -2 || record.value("culprit_rank", -1) == culprit)) {
      EXPECT_NE(record.value("code", "Ok"), "Ok");
      EXPECT_GE(record.value("done_ns", 0ull), record.value("admitted_ns", 0ull));
      return;
    }
  }
  ADD_FAILURE() << "no finished operation with reason " << reason << " and culprit " << culprit
                << " in\n"
                << trace.dump(1).substr(0, 3000);
}

nlohmann::json NodeTest::limit_of(const std::string& name) {
  const nlohmann::json status = arctl_json(*node_, {"status"});
  for (const nlohmann::json& limit : status.value("limits", nlohmann::json::array())) {
    if (limit["name"] == name) return limit;
  }
  ADD_FAILURE() << "arctl status shows no limit " << name;
  return {};
}

std::unique_ptr<ClientProcess> NodeTest::client_of(uid_t uid) {
  ClientProcess::Options options;
  options.environment = node().environment();
  options.uid = uid;
  options.gid = kNogroup;
  return ClientProcess::start(options);
}

std::string NodeTest::setting(const std::string& name) {
  const nlohmann::json status = arctl_json(*node_, {"status"});
  if (!status.contains("settings")) return {};
  for (const nlohmann::json& one : status["settings"]) {
    if (one.value("name", "") == name) return one.value("value", "");
  }
  return {};
}

std::uint64_t setting_from(const char* variable, std::uint64_t otherwise) {
  const char* text = std::getenv(variable);
  return text != nullptr ? std::strtoull(text, nullptr, 10) : otherwise;
}

void expect_all_fail(const std::vector<Reply>& replies, arcResult_t code, arcReason_t reason) {
  for (std::size_t rank = 0; rank < replies.size(); ++rank) {
    EXPECT_TRUE(replies[rank].heard && replies[rank].code == code && replies[rank].reason == reason)
        << "rank " << rank << " expected code " << code << " reason " << reason << ", got "
        << replies[rank].to_string();
  }
}

std::string level_of_line(const std::string& log, std::string_view text) {
  std::istringstream lines(log);
  for (std::string line; std::getline(lines, line);) {
    if (line.find(text) == std::string::npos) continue;
    for (const char* level : {"error", "warn", "audit", "info", "debug", "trace"}) {
      const std::size_t found = line.find(level);
      if (found != std::string::npos && found < line.find(text)) return level;
    }
  }
  return {};
}

}  // namespace arcomm::support
