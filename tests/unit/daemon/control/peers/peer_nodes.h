// Daemons as other daemons see them, several in one process: each a control loop on a thread of its
// own with its Peers on an address of 127.0.0.0/8, a fake worker, and a handler that remembers what
// it was told.
#pragma once

#include <gmock/gmock.h>
#include <sys/stat.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <future>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "daemon/control/peers/peers.h"
#include "daemon/telemetry/metrics/metrics.h"
#include "tests/unit/daemon/control/control_fixture.h"
#include "tests/unit/daemon/control/fake_worker.h"

namespace arcomm::test {

class PeerNodeUnderTest final : public PeerHandler {
 public:
  explicit PeerNodeUnderTest(Settings settings)
      : settings_(std::make_shared<const Settings>(std::move(settings))) {
    auto peers = Peers::create({.loop = loop_,
                                .metrics = metrics_,
                                .closer = closer_,
                                .settings = settings_,
                                .workers = {{.device = "host:0", .worker = &worker_}}});
    if (!peers) {
      failure = peers.error();
      return;
    }
    peers_ = *std::move(peers);
    peers_->messenger().use_handler(this);
    thread_ = std::thread([this] { loop_->run(); });
  }
  ~PeerNodeUnderTest() override {
    if (!peers_) return;
    peers_->stop_server();
    loop_->post([this] { peers_->close(); });
    loop_->stop();
    thread_.join();
    loop_->clear();
    peers_.reset();
  }

  // On its loop, and back.
  template <typename Ask>
  auto on_loop(Ask ask) -> decltype(ask()) {
    std::promise<decltype(ask())> answer;
    loop_->post([&] { answer.set_value(ask()); });
    return answer.get_future().get();
  }
  PeerNode self() {
    return on_loop([&] { return peers_->messenger().self(); });
  }
  PeerNode find(const std::string& address) {
    return on_loop([&] { return peers_->messenger().find(address); });
  }
  bool sees(const std::string& address) { return find(address).instance != 0; }
  Peer::State state_of(const std::string& address) {
    return on_loop([&] {
      const auto& peers = peers_->table().peers();
      const auto found = peers.find(address);
      return found == peers.end() ? Peer::State::Unknown : found->second->state();
    });
  }
  std::string why_of(const std::string& address) {
    return on_loop([&] { return peers_->table().peers().at(address)->why().message; });
  }
  std::string last_refused() {
    return on_loop([&] { return peers_->last_refused().message; });
  }
  Result<v1::AnnounceReply> announce(const std::string& to, const std::string& unique_id,
                                     milliseconds limit = milliseconds(3000)) {
    std::promise<Result<v1::AnnounceReply>> answer;
    loop_->post([&] {
      v1::AnnounceRequest request;
      request.set_unique_id(unique_id);
      peers_->messenger().announce(
          to, std::move(request), EventLoop::Clock::now() + limit,
          [&](Result<v1::AnnounceReply> reply) { answer.set_value(std::move(reply)); });
    });
    return answer.get_future().get();
  }
  Result<v1::PeerEmpty> commit(const PeerNode& to, milliseconds limit = milliseconds(3000)) {
    std::promise<Result<v1::PeerEmpty>> answer;
    loop_->post([&] {
      peers_->messenger().commit(
          to, {}, EventLoop::Clock::now() + limit,
          [&](Result<v1::PeerEmpty> reply) { answer.set_value(std::move(reply)); });
    });
    return answer.get_future().get();
  }
  std::future<Status> ensure_link(const PeerNode& to, milliseconds limit = milliseconds(5000),
                                  const std::string& worker = "host:0") {
    auto answer = std::make_shared<std::promise<Status>>();
    loop_->post([this, to, limit, worker, answer] {
      peers_->link_maker().ensure(to, worker, EventLoop::Clock::now() + limit,
                                  [answer](const Status& status) { answer->set_value(status); });
    });
    return answer->get_future();
  }
  void lose_link(PeerId peer) {
    on_loop([&] {
      peers_->link_lost(peer, 0, error(ErrorCode::Unavailable, Reason::RemoteDied, "cut"));
      return 0;
    });
  }
  // As an orderly stop begins; returns once the others have been told.
  void leave() {
    std::promise<void> told;
    loop_->post([&] { peers_->begin_stop([&told] { told.set_value(); }); });
    told.get_future().wait();
  }
  // Its loop and its port go on meanwhile.
  void stop_server() { peers_->stop_server(); }
  // Nothing of it moves meanwhile, as if it were stopped.
  void freeze(milliseconds how_long) {
    loop_->post([how_long] { std::this_thread::sleep_for(how_long); });
  }

  std::vector<std::string> heard() {
    std::lock_guard lock(mutex_);
    return heard_;
  }
  std::vector<std::pair<PeerId, std::string>> lost() {
    std::lock_guard lock(mutex_);
    return lost_;
  }

  void announced(const PeerNode& from, const v1::AnnounceRequest& request,
                 Answer<v1::AnnounceReply> answer) override {
    hear("announced by " + from.name + ": " + request.unique_id());
    if (request.unique_id() == "bad") {
      Error why = error(ErrorCode::FailedPrecondition, Reason::Mismatch, "ranks differ");
      why.rank = 3;
      return answer(why);
    }
    v1::AnnounceReply reply;
    reply.set_missing("rank 1");
    answer(reply);
  }
  void form(const PeerNode&, const v1::FormRequest&, Answer<v1::FormReply> answer) override {
    answer(v1::FormReply{});
  }
  void commit(const PeerNode& from, const v1::CommitRequest&,
              Answer<v1::PeerEmpty> answer) override {
    hear("committed by " + from.name);
    answer(v1::PeerEmpty{});
  }
  void abandon(const PeerNode&, const v1::AbandonRequest&, Answer<v1::PeerEmpty> answer) override {
    answer(v1::PeerEmpty{});
  }
  void peer_lost(const PeerNode& peer, const Error& why) override {
    std::lock_guard lock(mutex_);
    lost_.emplace_back(peer.instance, why.message);
  }

  Error failure;
  FakeWorker& worker() { return worker_; }
  std::shared_ptr<EventLoop> loop() { return loop_; }
  Peers& peers() { return *peers_; }

 private:
  void hear(std::string what) {
    std::lock_guard lock(mutex_);
    heard_.push_back(std::move(what));
  }

  std::shared_ptr<const Settings> settings_;
  std::shared_ptr<EventLoop> loop_ = EventLoop::create().value();
  Metrics metrics_;
  FdCloser closer_;
  FakeWorker worker_;
  std::unique_ptr<Peers> peers_;
  std::mutex mutex_;
  std::vector<std::string> heard_;
  std::vector<std::pair<PeerId, std::string>> lost_;
  std::thread thread_;
};

class PeersTest : public ::testing::Test {
 protected:
  PeersTest() {
    char name[] = "/tmp/arcomm-peers-XXXXXX";
    folder_ = ::mkdtemp(name);
    write_token("token", "a token of this test");
    // Tests that run at once have addresses of their own.
    const auto pid = static_cast<unsigned>(::getpid());
    network_ =
        "127." + std::to_string(1 + pid / 250 % 250) + "." + std::to_string(1 + pid % 250) + ".";
  }
  ~PeersTest() override { std::filesystem::remove_all(folder_); }

  std::string write_token(const std::string& name, const std::string& words, mode_t mode = 0600) {
    const std::string path = folder_ + "/" + name;
    std::ofstream(path) << words << "\n";
    ::chmod(path.c_str(), mode);
    return path;
  }
  std::string host(int index) const { return network_ + std::to_string(index); }
  std::string address(int index) const { return host(index) + ":7400"; }
  // Of `most` daemons, which all know of all.
  Settings settings_of(int index, int most) const {
    Settings settings;
    for (int i = 1; i <= most; ++i) settings.net.peers += (i == 1 ? "" : ", ") + address(i);
    settings.net.listen = address(index);
    settings.net.name = "node" + std::to_string(index);
    settings.net.token_file = folder_ + "/token";
    settings.net.peer_timeout_ms = 400;
    settings.net.streams = 2;
    return settings;
  }
  std::unique_ptr<PeerNodeUnderTest> start(const Settings& settings) {
    auto node = std::make_unique<PeerNodeUnderTest>(settings);
    EXPECT_EQ(node->failure.message, "");
    return node;
  }
  std::unique_ptr<PeerNodeUnderTest> start(int index, int most) {
    return start(settings_of(index, most));
  }

  std::string folder_, network_;
};

}  // namespace arcomm::test
