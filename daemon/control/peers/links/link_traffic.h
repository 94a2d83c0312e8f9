// What the links have carried, for the metrics: asks the workers each second while there is a link.
// Thread: the control loop.
#pragma once

#include <cstddef>
#include <map>
#include <utility>
#include <vector>

#include "daemon/control/calls/worker_replies.h"
#include "daemon/control/node_devices.h"
#include "daemon/exec/snapshots.h"

namespace arcomm {

class Metrics;

class LinkTraffic {
 public:
  LinkTraffic(EventLoop& loop, Metrics& metrics, std::vector<WorkerRef> workers)
      : loop_(loop), metrics_(metrics), workers_(std::move(workers)), replies_(loop) {}

  // There is a link now.
  void opened();
  // Both ways, as of the last second.
  std::uint64_t bytes_with(PeerId peer) const;

 private:
  void ask();
  void count(const WorkerSnapshot& shot, std::size_t worker);

  EventLoop& loop_;
  Metrics& metrics_;
  std::vector<WorkerRef> workers_;
  WorkerReplies replies_;
  std::map<std::pair<PeerId, std::size_t>, LinkSnapshot> counted_;
  bool is_counting_ = false;
};

}  // namespace arcomm
