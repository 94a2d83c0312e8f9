// The ground under every fault test: one real daemon, and the demand that it is as good as new
// afterwards. What every case asserts beside the error itself has a verb here: metric, log line,
// flight-recorder entry, and a clean AllReduce at the end (TearDown), with sessions, memory and
// operations back at zero. A case that leaves one out says why.
#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tests/support/metrics_scrape.h"
#include "tests/support/processes/arctl_run.h"
#include "tests/support/processes/client_process.h"
#include "tests/support/processes/daemon_process.h"
#include "tests/support/sessions/raw_session.h"
#include "tests/support/watchdog.h"

namespace arcomm::support {

using Clients = std::vector<std::unique_ptr<ClientProcess>>;

// A user of no group that matters, and the group of such users.
constexpr uid_t kNobody = 65'534;
constexpr gid_t kNogroup = 65'534;

// How long, how often: from the environment, for longer runs than everyday's.
std::uint64_t setting_from(const char* variable, std::uint64_t otherwise);

// Machines that run tests are busy: what must not happen is a wait until a deadline, or without
// one. An emulated one is slow as well.
inline const int kSlowdown = static_cast<int>(setting_from("ARCOMM_TEST_SLOWDOWN", 1));
inline const milliseconds kPrompt{3000 * kSlowdown};  // "at once", on a machine with two busy cores
inline const milliseconds kSlack{1500 * kSlowdown};   // past a deadline

#ifdef ARCOMM_SANITIZED
inline constexpr bool kSanitized = true;
#else
inline constexpr bool kSanitized = false;
#endif
// A sanitizer keeps freed memory for a while, so that a resident size says less; added to every
// bound on one.
inline constexpr std::uint64_t kQuarantineBytes = kSanitized ? std::uint64_t{1} << 30 : 0;

class NodeTest : public ::testing::Test {
 protected:
  // A case that is still at it after `limit` ends the program.
  explicit NodeTest(std::chrono::seconds limit = std::chrono::seconds(150))
      : watchdog_(::testing::UnitTest::GetInstance()->current_test_info()->name(), limit) {}

  // Starts the daemon of this test; throws, and so fails the test, when it is not ready.
  void start(DaemonProcess::Options options = {});
  void TearDown() override;

  DaemonProcess& node() { return *node_; }
  Metrics scrape() { return Metrics::scrape(*node_); }
  // The metric reaches `value` at least, within a few seconds.
  void expect_metric_at_least(std::string_view name, std::initializer_list<std::string_view> labels,
                              double value);
  void expect_metric_settles(std::string_view name, double value, milliseconds deadline = kPrompt);
  void expect_log(std::string_view text);
  // A control call of that process was refused: counted by its code, and told in the log.
  void expect_refusal_told(std::string_view call, pid_t pid, std::string_view code);
  // A finished operation with this reason is in the flight recorder; culprit -2: any.
  void expect_trace(std::string_view reason, int culprit = -2);
  // Finished operations of that process in the flight recorder; 0: of all.
  std::size_t traced(std::string_view code, pid_t pid = 0);
  // Until so many operations were admitted and have not ended: their ranks wait in the daemon now.
  void wait_in_flight(double operations);
  // What the node has of something for all users, as `arctl status` shows it: used, of_node, ...
  nlohmann::json limit_of(const std::string& name);
  // Of the same, what the metrics say is in use.
  double used(const char* resource) { return scrape().value("arcomm_node_used", {resource}); }
  // A client that is this user, of no group that matters. Needs root.
  std::unique_ptr<ClientProcess> client_of(uid_t uid);
  // The value of a setting as `arctl status` shows it.
  std::string setting(const std::string& name);

  std::unique_ptr<DaemonProcess> node_;
  bool expect_good_as_new_ = true;

 private:
  Watchdog watchdog_;
};

// All replies carry the code and the reason; says which did not.
void expect_all_fail(const std::vector<Reply>& replies, arcResult_t code, arcReason_t reason);
// Reads "log line: level" of the first line that contains `text`: "info", "warn", "error", ... or
// "".
std::string level_of_line(const std::string& log, std::string_view text);

}  // namespace arcomm::support
