// A wall clock that jumps by hours, in the daemon and in its clients. Fault matrix 36.
#include <gtest/gtest.h>

#include "tests/integration/node_test.h"

namespace arcomm::support {
namespace {

class ClockStep : public NodeTest {};

TEST_F(ClockStep, FiresNoTimeoutAndDelaysNone) {
#ifdef ARCOMM_SANITIZED
  // The sanitizers' runtime must be the first library of a process.
  GTEST_SKIP() << "a preloaded library and a sanitizer do not go together";
#endif
  const std::string preload = std::string("LD_PRELOAD=") + ARCOMM_CLOCK_STEP_LIBRARY;
  DaemonProcess::Options options;
  options.environment = {preload};
  start(options);
  Clients clients;
  for (int rank = 0; rank < 2; ++rank) {
    ClientProcess::Options client;
    client.environment = node().environment();
    client.environment.push_back(preload);
    clients.push_back(ClientProcess::start(client));
    clients.back()->expect_ok("init 3000");
  }
  form_communicator(clients, "c0");
  // Four steps a second for three seconds: none may end an operation early.
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(3);
  while (std::chrono::steady_clock::now() < end) {
    expect_all_ok(clients, "allreduce c0 1000 float32 sum n=20");
    expect_all_ok(clients, "async a c0 1000 float32 sum");
    expect_all_ok(clients, "sleep 100");
    expect_all_ok(clients, "wait a");
  }
  // And a deadline that is due comes when it is due.
  const Reply late = clients[0]->ask("allreduce c0 1000 float32 sum");
  EXPECT_EQ(late.reason, arcReasonTimeout) << late.to_string();
  EXPECT_GE(late.took, milliseconds(2900)) << "the deadline came early";
  EXPECT_LT(late.took, milliseconds(3000) + kSlack) << "the deadline came late";
  EXPECT_EQ(scrape().value("arcomm_operations_total", {"DeadlineExceeded"}), 1);
  expect_log("rank 1 (pid " + std::to_string(clients[1]->pid()) + ") did not call");
  expect_trace("Timeout", 1);
}

}  // namespace
}  // namespace arcomm::support
