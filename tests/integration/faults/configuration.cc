// Reloads, good and bad, with work under way. Fault matrix 31 and 32.
#include <gtest/gtest.h>
#include <signal.h>

#include "tests/integration/node_test.h"

namespace arcomm::support {
namespace {

constexpr const char* kGood = "[op]\ndefault_timeout_ms = 20000\n[log]\nlevel = \"info\"\n";

class Configuration : public NodeTest {
 protected:
  void start_with(const char* text) {
    DaemonProcess::Options options;
    options.config_text = text;
    start(options);
  }
  std::size_t count_notifications(std::string_view text) {
    std::size_t count = 0;
    for (const std::string& message : node().notifications())
      count += message.find(text) != std::string::npos ? 1 : 0;
    return count;
  }
};

TEST_F(Configuration, ABadFileOnReloadChangesNothingAndIsNamedByLineAndKey) {  // 31
  start_with(kGood);
  const std::size_t ready = count_notifications("READY=1");
  write_text(node().config_path(), "[op]\ndefault_timeout_ms = 20000\n\nsegment_bites = 17\n");
  node().signal(SIGHUP);
  EXPECT_TRUE(node().wait_for_notification("RELOADING=1"));
  EXPECT_TRUE(eventually(kPrompt, [&] { return count_notifications("READY=1") > ready; }))
      << "READY did not resume";
  expect_log("segment_bites");
  EXPECT_NE(node().log().find("arcommd.toml:4"), std::string::npos) << "the line is not cited";
  EXPECT_NE(node().log().find("segment_bytes"), std::string::npos)
      << "the nearest right key is not suggested";
  expect_metric_at_least("arcomm_config_reloads_total", {"error"}, 1);
  EXPECT_EQ(setting("op.default_timeout_ms"), "20000");

  const ArctlRun reload = arctl(node(), {"reload"});
  EXPECT_EQ(reload.code, 1) << reload.output << reload.errors;
  EXPECT_NE((reload.output + reload.errors).find("segment_bites"), std::string::npos)
      << reload.errors;
  for (const char* text : {"[op\n", "[op]\ndefault_timeout_ms = \"soon\"\n",
                           "[op]\ndefault_timeout_ms = -4\n", "\xff\xfe"}) {
    write_text(node().config_path(), text);
    EXPECT_EQ(arctl(node(), {"reload"}).code, 1) << text;
  }
  EXPECT_EQ(setting("op.default_timeout_ms"), "20000");
}

TEST_F(Configuration, AValidReloadUnderLoadFailsNoOperation) {  // 32
  start_with(kGood);
  const Clients clients = start_ranks(node(), 2);
  for (const auto& client : clients) client->tell("loop c0 20000 float32 sum n=3000");
  for (int round = 1; round <= 20; ++round) {
    write_text(node().config_path(), "[op]\ndefault_timeout_ms = " + std::to_string(20000 + round) +
                                         "\n[wait]\nspin_us = " + std::to_string(round * 10) +
                                         "\n[log]\nlevel = \"" +
                                         (round % 2 == 0 ? "info" : "debug") + "\"\n");
    if (round % 2 == 0) {
      node().signal(SIGHUP);
      expect_metric_at_least("arcomm_config_reloads_total", {"ok"}, round);
    } else {
      EXPECT_EQ(arctl(node(), {"reload"}).code, 0);
    }
  }
  for (const auto& client : clients) {
    const Reply reply = client->hear(milliseconds(60000));
    EXPECT_TRUE(reply.ok()) << reply.to_string();
  }
  EXPECT_TRUE(eventually(kPrompt, [&] { return setting("op.default_timeout_ms") == "20020"; }))
      << setting("op.default_timeout_ms");
  EXPECT_EQ(setting("wait.spin_us"), "200");
  const Metrics metrics = scrape();
  EXPECT_EQ(metrics.value("arcomm_config_reloads_total", {"ok"}), 20);
  EXPECT_EQ(metrics.value("arcomm_operations_total"),
            metrics.value("arcomm_operations_total", {"Ok"}));
  EXPECT_EQ(traced("Ok"), 4096u) << "an operation that failed is in the flight recorder";
  EXPECT_GE(arctl_json(node(), {"status"}).value("config_generation", 0), 20);
  expect_log("reloaded: settings of generation 21 are in force");
}

TEST_F(Configuration, ASettingFixedUntilRestartIsSaidToBeSo) {  // 32
  start_with(kGood);
  write_text(node().config_path(), "[host]\nstreams = 3\n[op]\ndefault_timeout_ms = 21000\n");
  const nlohmann::json reload = arctl_json(node(), {"reload"});
  EXPECT_NE(reload.dump().find("host.streams"), std::string::npos) << reload.dump();
  EXPECT_EQ(reload["needs_restart"].size(), 1u) << reload.dump();
  EXPECT_EQ(setting("op.default_timeout_ms"), "21000");
}

TEST_F(Configuration, ADaemonDoesNotStartOnABadFile) {  // 31
  DaemonProcess::Options options;
  options.config_text = "[quota]\nsessions = 0\nsesions = 4\n";
  options.expect_ready = false;
  auto daemon = DaemonProcess::start(options);
  ASSERT_NE(daemon, nullptr);
  const std::optional<Exit> exit = daemon->wait_exit(milliseconds(10000));
  ASSERT_TRUE(exit.has_value());
  EXPECT_EQ(exit->code, 2) << "the unit's RestartPreventExitStatus= names 2";
  EXPECT_EQ(exit->signal, 0);
  const std::string log = daemon->log();
  EXPECT_NE(log.find("arcommd.toml:2"), std::string::npos) << log;
  EXPECT_NE(log.find("arcommd.toml:3"), std::string::npos)
      << "every mistake is listed, not the first: " << log;
  const Ran checked =
      run_to_end({daemon_binary(), "--check-config", "--config", daemon->config_path()},
                 daemon->environment(), milliseconds(10000));
  ASSERT_TRUE(checked.exit.has_value());
  EXPECT_EQ(checked.exit->code, 2);
  EXPECT_NE((checked.output + checked.errors).find("sesions"), std::string::npos);
}

}  // namespace
}  // namespace arcomm::support
