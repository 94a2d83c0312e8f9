// The client library in this very process, over a real daemon: the ground under its tests.
#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "client/include/arclient.hpp"
#include "tests/support/processes/daemon_process.h"
#include "tests/support/scratch_folder.h"
#include "tests/support/watchdog.h"

namespace arcomm::support {

using Clock = std::chrono::steady_clock;

// Machines that run tests are busy; a promise of 100 ms is judged with this much added.
inline constexpr milliseconds kSlack{1500};
// For tests that wait a deadline out. The daemon's own answers must fit into it, on such a machine
// too.
inline constexpr milliseconds kShort{1500};

inline milliseconds since(Clock::time_point start) {
  return std::chrono::duration_cast<milliseconds>(Clock::now() - start);
}

inline arcErrorInfo_t last() {
  arcErrorInfo_t info{};
  info.struct_size = sizeof(info);
  arcGetLastErrorInfo(&info);
  return info;
}

class ClientLibrary : public ::testing::Test {
 protected:
  void start(DaemonProcess::Options options = {}, std::uint64_t timeout_ms = 10000) {
    options.folder = folder_.path();
    daemon_ = DaemonProcess::start(options);
    ASSERT_NE(daemon_, nullptr);
    if (session_) return;
    runtime_dir_ = daemon_->runtime_dir();
    arcConfig_t config = ARC_CONFIG_INITIALIZER;
    config.runtime_dir = runtime_dir_.c_str();
    config.timeout_ms = timeout_ms;
    session_ = std::make_unique<arc::Session>(config);
  }
  void TearDown() override {
    comms_.clear();
    session_.reset();
    if (daemon_ && daemon_->running()) daemon_->stop();
  }
  void restart() {
    daemon_.reset();
    start();
  }
  // All ranks of one communicator in this process.
  void form(int ranks) {
    comms_ = std::vector<arc::Communicator>(static_cast<std::size_t>(ranks));
    const arcUniqueId id = arc::unique_id();
    arc::Group group;
    for (int rank = 0; rank < ranks; ++rank) {
      arc::check(arcCommInitRank(comm(rank).out(), ranks, id, rank));
    }
    group.end();
  }
  void rebuild() {
    arc::Group group;
    for (arc::Communicator& each : comms_) each.rebuild();
    group.end();
  }
  arc::Communicator& comm(int rank) { return comms_[static_cast<std::size_t>(rank)]; }

  ScratchFolder folder_;
  std::string runtime_dir_;
  std::unique_ptr<DaemonProcess> daemon_;
  std::unique_ptr<arc::Session> session_;
  std::vector<arc::Communicator> comms_;
  Watchdog watchdog_{"client_library", std::chrono::seconds(120)};
};

inline std::int64_t element(int rank, std::size_t i) {
  return static_cast<std::int64_t>(i) * 3 + rank;
}
inline std::int64_t sum_of(int ranks, std::size_t i) {
  return static_cast<std::int64_t>(i) * 3 * ranks + ranks * (ranks - 1) / 2;
}

// Even ranks own daemon memory, odd ones use the heap; every third rank receives elsewhere.
struct RankMemory {
  RankMemory(int rank, std::size_t count) : heap(count), out(count) {
    if (rank % 2 == 0) shared = arc::Buffer<std::int64_t>(count);
    send = rank % 2 == 0 ? shared.data() : heap.data();
    recv = rank % 3 == 2 ? out.data() : send;
    for (std::size_t i = 0; i < count; ++i) send[i] = element(rank, i);
  }
  arc::Buffer<std::int64_t> shared;
  std::vector<std::int64_t> heap, out;
  std::int64_t* send = nullptr;
  std::int64_t* recv = nullptr;
};

}  // namespace arcomm::support
