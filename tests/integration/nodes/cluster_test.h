// The ground under every test of several nodes: real daemons on addresses of their own in
// 127.0.0.0/8, which share a list of peers and a token, and clients of each. A node that was
// stopped or killed can be started again at its address. At the end all nodes that run form a
// communicator of all and stop cleanly; a case that leaves that out says why.
#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "tests/integration/node_test.h"
#include "tests/support/processes/arctl_run.h"
#include "tests/support/processes/client_process.h"
#include "tests/support/processes/daemon_process.h"
#include "tests/support/scratch_folder.h"
#include "tests/support/watchdog.h"

namespace arcomm::support {

class ClusterTest : public ::testing::Test {
 protected:
  // A case that is still at it after `limit` ends the program.
  explicit ClusterTest(std::chrono::seconds limit = std::chrono::seconds(150));
  ~ClusterTest() override;

  // So many daemons that know each other; returns when each has found all others alive. Throws, and
  // so fails the test, where that does not come about.
  void start(int nodes, std::map<std::string, std::string> settings = {});
  void start_node(std::size_t index);
  void TearDown() override;

  DaemonProcess& node(std::size_t index) { return *nodes_[index]; }
  std::size_t nodes() const { return nodes_.size(); }
  std::string address(std::size_t index) const;  // "127.3.7.2:7400"
  // That all nodes which run see each other alive.
  void expect_acquainted(milliseconds deadline = milliseconds(15000));
  nlohmann::json net(std::size_t index) { return arctl_json(node(index), {"net"}); }

  // Attached processes, rank by rank on the node named: {0, 0, 1} is two ranks on node 0 and one on
  // node 1; with a communicator "c0" over them.
  Clients start_ranks_on(const std::vector<std::size_t>& node_of_rank,
                         std::string_view init = "init");
  std::unique_ptr<ClientProcess> start_client(std::size_t node, std::string_view init = "init");

  bool expect_good_as_new_ = true;

 private:
  Watchdog watchdog_;
  ScratchFolder scratch_;
  std::string network_;  // "127.3.7."
  std::map<std::string, std::string> settings_;
  std::vector<std::unique_ptr<DaemonProcess>> nodes_;
};

}  // namespace arcomm::support
