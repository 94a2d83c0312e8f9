#include "tests/integration/nodes/cluster_test.h"

#include <sys/stat.h>
#include <unistd.h>

#include <csignal>
#include <stdexcept>
#include <utility>

namespace arcomm::support {

ClusterTest::ClusterTest(std::chrono::seconds limit)
    : watchdog_(::testing::UnitTest::GetInstance()->current_test_info()->name(), limit) {
  // Tests that run at once have addresses of their own.
  const auto pid = static_cast<unsigned>(::getpid());
  network_ =
      "127." + std::to_string(1 + pid / 250 % 250) + "." + std::to_string(1 + pid % 250) + ".";
}

ClusterTest::~ClusterTest() = default;

std::string ClusterTest::address(std::size_t index) const {
  return network_ + std::to_string(index + 1) + ":7400";
}

void ClusterTest::start(int nodes, std::map<std::string, std::string> settings) {
  settings_ = std::move(settings);
  const std::string token = scratch_ / "token";
  write_text(token, "a token that only this test knows\n");
  ::chmod(token.c_str(), 0600);
  std::string peers;
  nodes_.resize(static_cast<std::size_t>(nodes));
  for (std::size_t i = 0; i < nodes_.size(); ++i) peers += (i == 0 ? "" : ",") + address(i);
  settings_.try_emplace("net.peers", peers);
  settings_.try_emplace("net.token_file", token);
  settings_.try_emplace("net.peer_timeout_ms", "2000");
  for (std::size_t i = 0; i < nodes_.size(); ++i) start_node(i);
  expect_acquainted();
}

void ClusterTest::start_node(std::size_t index) {
  DaemonProcess::Options options;
  options.settings = settings_;
  options.settings["net.listen"] = address(index);
  options.settings["net.name"] = "node" + std::to_string(index);
  options.folder = scratch_ / ("node" + std::to_string(index));
  ::mkdir(options.folder.c_str(), 0755);
  nodes_[index].reset();
  nodes_[index] = DaemonProcess::start(std::move(options));
  if (!nodes_[index]) throw std::runtime_error("no daemon");
}

void ClusterTest::expect_acquainted(milliseconds deadline) {
  std::size_t running = 0;
  for (const auto& one : nodes_) running += one && one->running() ? 1 : 0;
  for (std::size_t i = 0; i < nodes_.size(); ++i) {
    if (!nodes_[i] || !nodes_[i]->running()) continue;
    nlohmann::json seen;
    const bool all = eventually(deadline, [&] {
      seen = net(i);
      std::size_t alive = 0;
      for (const nlohmann::json& peer : seen.value("peers", nlohmann::json::array()))
        alive += peer.value("state", "") == "alive" ? 1 : 0;
      return alive + 1 >= running;
    });
    if (!all)
      throw std::runtime_error("node" + std::to_string(i) + " sees " + seen.dump() + "\n" +
                               node(i).log());
  }
}

std::unique_ptr<ClientProcess> ClusterTest::start_client(std::size_t node_index,
                                                         std::string_view init) {
  auto client = ClientProcess::start(node(node_index));
  client->expect_ok(init);
  return client;
}

Clients ClusterTest::start_ranks_on(const std::vector<std::size_t>& node_of_rank,
                                    std::string_view init) {
  Clients clients;
  for (const std::size_t where : node_of_rank) clients.push_back(start_client(where, init));
  form_communicator(clients, "c0");
  return clients;
}

void ClusterTest::TearDown() {
  if (expect_good_as_new_ && !nodes_.empty() && !HasFatalFailure()) {
    std::vector<std::size_t> running;
    for (std::size_t i = 0; i < nodes_.size(); ++i) {
      if (nodes_[i] && nodes_[i]->running()) running.push_back(i);
    }
    expect_acquainted();
    const Clients clients = start_ranks_on(running);
    expect_all_ok(clients, "allreduce c0 100003 float32 sum");
    expect_all_ok(clients, "finalize");
  }
  for (auto& one : nodes_) {
    if (one && one->running()) one->stop();
  }
}

}  // namespace arcomm::support
