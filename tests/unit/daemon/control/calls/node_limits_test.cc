// What there is for all users together, through real calls: who takes too much of it, and what the
// status says.
#include <future>

#include "daemon/telemetry/log/log.h"
#include "tests/unit/daemon/control/control_fixture.h"

namespace arcomm::test {
namespace {

class NodeLimits : public ControlTest {};

// Each keeps its request until the other ranks have come.
TEST_F(NodeLimits, NobodyHasAllCallsThatMayWait) {
  settings_.quota.node_calls = 8;
  settings_.quota.communicators = 100;
  start();
  const Session session = open_session();
  std::vector<std::future<Outcome>> waiting;
  for (int rank = 0; rank < 4; ++rank) {
    waiting.push_back(std::async(std::launch::async, [&, rank] {
      return join(session, unique_id('a'), rank, 5, nullptr, 20'000);
    }));
  }
  EXPECT_TRUE(eventually([&] { return limit("calls").used() == 4; }));
  const v1::LimitStatus told = limit("calls");
  EXPECT_EQ(told.of_node(), 8u);
  EXPECT_EQ(told.most_uid(), ::getuid());
  EXPECT_EQ(metrics_.node(NodeResource::Calls).used.value(), 4);
  const Outcome refused = join(session, unique_id('a'), 4, 5, nullptr);
  EXPECT_EQ(refused.status.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_EQ(refused.reason, Reason::Quota);
  EXPECT_NE(refused.status.error_message().find("4 of 8 (quota.node_calls), of which uid"),
            std::string::npos)
      << refused.status.error_message();
  settings_.quota.node_calls = 100;
  plane_->use_settings(std::make_shared<const Settings>(settings_));
  EXPECT_TRUE(eventually([&] { return limit("calls").of_node() == 100; }));
  EXPECT_TRUE(join(session, unique_id('a'), 4, 5, nullptr).status.ok());
  for (auto& one : waiting) EXPECT_TRUE(one.get().status.ok());
  EXPECT_TRUE(eventually([&] { return limit("calls").used() == 0; }));
}

TEST_F(NodeLimits, HowManyConnectionsThereMayBeIsASetting) {
  settings_.quota.node_connections = 77;
  start();
  const Session session = open_session();
  EXPECT_EQ(limit("connections").of_node(), 77u);
  EXPECT_EQ(limit("connections").used(), 3u) << "client.sock, fd.sock, and the one that asks";
  EXPECT_EQ(metrics_.node(NodeResource::Connections).used.value(), 3);
  settings_.quota.node_connections = 66;
  plane_->use_settings(std::make_shared<const Settings>(settings_));
  EXPECT_TRUE(eventually([&] { return limit("connections").of_node() == 66; }));
  EXPECT_EQ(metrics_.node(NodeResource::Connections).limit.value(), 66);
}

TEST_F(NodeLimits, TheStatusTellsWhoseTheLinesOfThisSecondAre) {
  start();
  EXPECT_EQ(limit("audit_lines").of_node(), 512u);
  EXPECT_EQ(limit("audit_lines").of_uid(), 16u);
  EXPECT_TRUE(eventually([&] {
    v1::AttachReply reply;
    EXPECT_FALSE(attach(reply, kRingAbiMajor + 1).status.ok());
    const v1::LimitStatus told = limit("log_lines_about_calls");
    return told.used() > 0 && told.most() > 0 && told.most_uid() == ::getuid();
  }));
}

}  // namespace
}  // namespace arcomm::test
